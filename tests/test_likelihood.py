"""Likelihood bounds against sums over all noise, and against joints that are known exactly."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import model

import sake_jax as sj
from sake_jax import conversion, likelihood
from sake_jax.core import LOWEST
from sake_jax.likelihood import bound, log_likelihood
from sake_jax.models import DiTConfig, total_noise

KEY = jax.random.key(0)
V, L = 3, 4


def ids(*shape, high=200, seed=0):
    return np.random.default_rng(seed).integers(0, high, shape)


def exact(lm, prompt, answer, scale=0.0):
    """LLaDA's bound by summing over every set of masked tokens."""
    n, before, mask_id = len(answer), len(prompt), lm.config.mask_id
    sets = np.array([s for s in itertools.product([False, True], repeat=n) if any(s)])
    clean = np.tile([*prompt, *answer], (len(sets), 1))
    noisy = clean.copy()
    noisy[:, before:][sets] = mask_id
    bare = noisy.copy()
    bare[:, :before] = mask_id
    logits, other = np.split(np.asarray(lm.logits(np.concatenate([noisy, bare])), np.float64), 2)
    logits = other + (scale + 1) * (logits - other)
    if lm.config.network.shifted:
        logits = np.concatenate([logits[:, :1], logits[:, :-1]], axis=1)
    log_p = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    picked = np.take_along_axis(log_p, clean[..., None], axis=-1)[:, before:, 0]
    count = sets.sum(axis=1)
    ways = np.array([(count == k).sum() for k in count])
    return np.sum(np.sum(picked * sets, axis=1) / (count * ways))


@pytest.mark.parametrize(("name", "scale"), [("llada", 0.7), ("dream", 0.0)])
def test_log_likelihood_is_the_sum_over_all_draws(name, scale):
    lm, prompt, answer = model(name), ids(10), ids(3, seed=1)
    got = log_likelihood(lm, [prompt], [answer], key=KEY, draws=600, batch=24, scale=scale)
    assert abs(got.value[0] - exact(lm, prompt, answer, scale)) < 4 * got.error[0]
    assert got.error[0] < 1


def time_of(sigma):
    return (1 - jnp.exp(-sigma)) / (1 - 1e-3)


@pytest.fixture
def oracle(monkeypatch):
    """Models whose predictions are the exact conditionals of a joint over V^L."""
    table = np.random.default_rng(0).gamma(0.5, size=V**L) + 0.02
    table = table / table.sum()
    outcomes = jnp.asarray(list(itertools.product(range(V), repeat=L)))

    def features(network, params, inputs):
        mask_id = V if network.V > V else None
        rows, clean = inputs.tokens[:, None, :], outcomes[None]
        told = jnp.zeros(rows.shape[0]) if inputs.sigma is None else inputs.sigma
        t = time_of(told)[:, None, None]
        same = (rows == clean).astype(jnp.float32)
        if mask_id is None:
            chance = (1 - t) * same + t / V  # q(x_t | x)
        else:
            chance = jnp.maximum(same, (rows == mask_id).astype(jnp.float32))
        seen = chance[:, :, None, :]  # by each column
        if mask_id is None:
            # With uniform noise the best prediction looks at the others alone (its own token is
            # in the formula already), unless there is no noise.
            alone = jnp.eye(L, dtype=bool)[None, None] & (t > 0)[..., None]
            seen = jnp.where(alone, 1.0, seen)
        if inputs.clean is not None:
            block = jnp.arange(L) // network.block_size
            own, other = block[:, None], block[None, :]
            before = (inputs.clean[:, None, :] == clean).astype(jnp.float32)[:, :, None, :]
            seen = jnp.where((other == own)[None, None], seen, 1.0)
            seen = seen * jnp.where((other < own)[None, None], before, 1.0)
        weight = params["joint"][None, :, None] * jnp.prod(seen, axis=-1)
        ones = jax.nn.one_hot(outcomes, network.V)
        total = jnp.einsum("bol,olv->blv", weight, ones, precision="highest")
        if network.scores:
            return true_scores(total, inputs, t, mask_id)
        fade = 1 - params["fade"] * (1 - t)
        # The mask token, where there is one, gets a logit that must not count.
        return (jnp.maximum(jnp.log(total), LOWEST) * fade).at[..., V:].set(3.0)

    def true_scores(total, inputs, t, mask_id):
        """What a perfect network of scores gives, in the form in which SEDD's does."""
        alike = total / jnp.sum(total, axis=-1, keepdims=True)
        if mask_id is not None:
            return jnp.maximum(jnp.log(V * alike), LOWEST).at[..., V:].set(3.0)
        chance = (1 - t) * alike + t / V
        own = jnp.take_along_axis(chance, inputs.tokens[..., None], axis=-1)
        return jnp.log(chance / own)

    monkeypatch.setattr(likelihood, "aligned_features", features)

    def make(family, **changes):
        with_mask = family not in ("udlm", "sedd_uniform")
        size = V + with_mask
        sizes = {"V": size, "D": 4, "N": 1, "H": 1, "F": 1, "context": L, "cond_dim": 1}
        mask_id, family = V if with_mask else None, family.removesuffix("_uniform")
        config = conversion.family(family).model(DiTConfig(**sizes | changes), mask_id=mask_id)
        params = {"output": {"rows": np.eye(size, dtype=np.float32)}, "fade": np.float32(0)}
        params["joint"] = table.astype(np.float32)
        return sj.LanguageModel(config, params | {"input": params["output"]})

    return make, np.asarray(outcomes), -np.log(table)


CASES = {
    "mdlm": {"time_conditioning": True},
    "bd3lm": {"block_size": 2},
    "udlm": {"time_conditioning": True},
}
SCORES = {
    "sedd": {"time_conditioning": True, "scores": True, "scale_by_sigma": True},
    "sedd_uniform": {"time_conditioning": True, "scores": True},
    "radd": {"cond_dim": 0},
}


@pytest.mark.parametrize("case", CASES | SCORES)
def test_the_bound_is_tight_for_exact_conditionals(case, oracle):
    make, outcomes, nll = oracle
    lm = make(case, **(CASES | SCORES)[case])
    likely = np.argsort(nll)[[0, 20, 60]]
    got = bound(lm, outcomes[likely], key=KEY, draws=3000, batch=3000)
    assert np.all(np.abs(got.value - nll[likely] / L) < 4 * got.error + 1e-4)
    assert np.all(got.error < 0.05)


def test_a_masked_network_may_be_told_the_time(oracle):
    """One that errs the more the less is masked, against an integral over time."""
    make, outcomes, _ = oracle
    lm, text = make("mdlm", **CASES["mdlm"]), outcomes[7]
    lm.params["fade"] = np.float32(4)
    got = bound(lm, [text], key=KEY, draws=30_000, batch=3000)
    sets = np.array(list(itertools.product([False, True], repeat=L)))
    inputs = lm.network_input(np.where(sets, V, text))
    read = jax.jit(functools.partial(likelihood.aligned_features, lm.config.network))
    nodes, weights = np.polynomial.legendre.leggauss(20)
    total = 0.0
    for t, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        timed = inputs.replace(sigma=total_noise(jnp.full(len(sets), t)))
        log_p = np.asarray(jax.nn.log_softmax(read(lm.params, timed)[..., :V]))
        losses = np.where(sets, -log_p[:, np.arange(L), text], 0)
        chance = np.prod(np.where(sets, t, 1 - t), axis=1)
        total += weight * np.sum(chance * losses.sum(axis=1)) / t
    assert abs(got.value[0] - total / L) < 4 * got.error[0]
    assert got.error[0] < 0.02


@pytest.mark.parametrize("case", CASES)
def test_what_the_bound_says_of_worse_predictions(case, oracle):
    make, outcomes, nll = oracle
    lm, p = make(case, **CASES[case]), np.exp(-nll)
    lm.params["output"]["rows"][:] *= 0.3  # too flat
    got = bound(lm, outcomes, key=KEY, draws=100, batch=3000)
    assert np.sum(p * got.value) > np.sum(p * nll / L) + 0.05
    lm.params["output"]["rows"][:] = 0  # all tokens alike, even when told that nothing is noise
    got = bound(lm, outcomes[:3], key=KEY, draws=3000, batch=3000)
    alike = np.log(V) * (2 if case == "udlm" else 1)
    assert np.all(np.abs(got.value - alike) < 4 * got.error + 1e-5)
    assert np.all(got.error < (0.1 if case == "udlm" else 1e-5))


def test_the_likelihood_in_any_order_is_exact_for_exact_conditionals(oracle):
    make, outcomes, nll = oracle
    lm = make("radd", **SCORES["radd"])
    for order in (np.arange(L), np.random.default_rng(0).permutation(L)):
        got = sj.log_likelihood_in_order(lm, outcomes[::7], order, batch=5)
        np.testing.assert_allclose(-got, nll[::7], rtol=1e-4)
    for texts, order, message in (
        (outcomes[:2], [0] * L, "must name every column once"),
        ([outcomes[0], outcomes[1][:-1]], range(L), "must have one length"),
    ):
        with pytest.raises(ValueError, match=message):
            sj.log_likelihood_in_order(lm, texts, order)
    with pytest.raises(ValueError, match="does not look at the time"):
        sj.log_likelihood_in_order(make("sedd", **SCORES["sedd"]), outcomes[:2], range(L))


def test_llada_leaves_the_mask_a_chance(oracle):
    lm = oracle[0]("llada")
    lm.params["output"]["rows"][:] = 0
    got = bound(lm, oracle[1][:3], key=KEY, draws=8)
    np.testing.assert_allclose(got.value, np.log(V + 1), rtol=1e-5)


def test_an_estimate_does_not_depend_on_its_batch():
    """Nor on the order, the padding, or how many draws go through the network at once."""
    prompts = [ids(10), ids(2, seed=1), ids(6, seed=2)]
    pairs = prompts, [ids(3), ids(2), ids(1)]
    score = functools.partial(log_likelihood, model("llada"), key=KEY, draws=8, scale=0.7)
    together = score(*pairs)
    again = score(*(part[::-1] for part in pairs))
    alone = score(*(part[1:2] for part in pairs), batch=5)
    for got, where in ((again, slice(None, None, -1)), (alone, slice(1, 2))):
        np.testing.assert_allclose(got.value, together.value[where], rtol=1e-4)
        np.testing.assert_allclose(got.error, together.error[where], rtol=1e-3)
    other = score(*pairs, key=jax.random.key(1))
    assert np.all(np.abs(other.value - together.value)[:2] > 1e-3)
    assert other.error[2] < 1e-5, "one token is masked, or it is not"


def test_blocks_do_not_depend_on_padding():
    lm, texts = model("bd3lm"), [ids(13), ids(6, seed=1)]
    together = bound(lm, texts, key=KEY, draws=8)
    alone = bound(lm, texts[1:], key=KEY, draws=8)
    np.testing.assert_allclose(alone.value, together.value[1:], rtol=1e-4)


def test_one_draw_has_no_error_to_report():
    got = bound(model("bd3lm"), ids(8, 6), key=KEY, draws=1)
    assert np.all(np.isinf(got.error) & np.isfinite(got.value))


BAD = {
    "no token": ({"answers": [[]]}, "at least one token"),
    "no answer": ({"prompts": [], "answers": []}, "at least one answer"),
    "a prompt too few": ({"prompts": []}, "a prompt for each"),
    "another vocabulary": ({"answers": [[999]]}, "inside the vocabulary"),
    "fractions": ({"answers": np.array([[0.5]])}, "whole numbers"),
    "a masked text": ({"answers": [[1, 270]]}, "must not hold the mask token 270"),
    "too long": ({"answers": [[1] * 200]}, "at most 128 columns"),
    "no draws": ({"draws": 0}, "draws must be at least 1"),
    "no batch": ({"batch": 0}, "batch must be at least 1"),
    "negative scale": ({"scale": -1.0}, "scale must be at least 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    changes, message = BAD[case]
    args = {"prompts": [[1, 2]], "answers": [[3]], "draws": 4, "batch": 4} | changes
    with pytest.raises(ValueError, match=message):
        log_likelihood(model("llada"), key=KEY, **args)


def test_models_that_have_no_bound_say_so(oracle):
    with pytest.raises(ValueError, match=r"use lm\.score"):
        bound(model("gpt2"), [[1]], key=KEY)
    with pytest.raises(ValueError, match="mask token to hide the prompt"):
        log_likelihood(model("udlm"), [[1]], [[2]], key=KEY, scale=1.0)
    told = oracle[0]("bd3lm", block_size=2, time_conditioning=True)
    with pytest.raises(ValueError, match="noise levels of their own"):
        bound(told, [[1]], key=KEY)
