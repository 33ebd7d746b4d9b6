"""Noise by matrices (D3PM): matrices, posteriors, bounds and runs against the original; and where
they coincide with `absorbing` and `uniform`."""

import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import at_step

import sake_jax as sj
from sake_jax import matrices
from sake_jax.losses import prior_terms, surprise, transition_terms
from sake_jax.samplers import advance, begin
from sake_jax.testing import ToyDenoiser, toy_params, toy_view
from tiers import few_quick

KEY = jax.random.key(0)
K, T, EPS = 16, 8, 1e-6
CASES = ("absorbing", "uniform", "uniform_banded", "gaussian", "gaussian_banded")


def built(about):
    """The matrices of a recorded process, from its description."""
    spec = about["betas"]
    count = spec["num_timesteps"]
    betas = {
        "linear": lambda: matrices.linear_betas(count, spec["start"], spec["stop"]),
        "cosine": lambda: matrices.cosine_betas(count),
        "jsd": lambda: matrices.harmonic_betas(count),
    }[spec["type"]]()
    size, bands = about["num_classes"], about["bands"]
    if about["type"] == "absorbing":
        return betas, matrices.absorbing(betas, size, about["absorbing_state"])
    if about["type"] == "uniform":
        return betas, matrices.uniform(betas, size, bands)
    return betas, matrices.gaussian(betas, size, bands, pixel_spacing=True)


@pytest.fixture(scope="module")
def cases(golden):
    arrays = golden("d3pm/golden_d3pm.npz")

    def case(name):
        about = golden("d3pm/d3pm.json")["cases"][name]
        own = {k.split("/")[1]: v for k, v in arrays.items() if k.split("/")[0] == name}
        return about, own

    return case


class ToyD3PM(sj.Node):
    """logits = W[x] + T[t], as recorded: features are one-hot tokens and steps."""

    affine: ClassVar[bool] = True

    def read(self, params, view, cache):
        step = jnp.round(view.time * T).astype(jnp.int32) - 1
        token = jax.nn.one_hot(view.tokens, K)
        when = jnp.broadcast_to(jax.nn.one_hot(step, T)[:, None], (*view.tokens.shape, T))
        return jnp.concatenate([token, when], axis=-1), None

    def head(self, params, rows):
        return jnp.einsum("bwd,vd->bwv", rows, params["output"])

    def tables(self, params):
        return sj.Tables(params["input"], params["output"])


def toy(golden):
    g = golden("d3pm/golden_d3pm.npz")
    output = np.concatenate([g["toy_model/W"], g["toy_model/T"]]).T
    return {"output": jnp.asarray(output), "input": jnp.eye(K, K + T)}


@pytest.mark.parametrize("name", CASES)
def test_matrices_are_the_references(name, cases):
    about, g = cases(name)
    betas, steps = built(about)
    np.testing.assert_allclose(betas, g["betas"], rtol=1e-12)
    np.testing.assert_allclose(steps, g["q_onestep"], atol=1e-12)
    chain = matrices.TransitionMatrices.of(steps)
    np.testing.assert_allclose(chain.cumulative, g["q_cumulative"], atol=1e-6)
    one_hot = jax.nn.one_hot(g["x_start"], K)
    time = jnp.asarray(g["t"] + 1, jnp.float32) / T
    np.testing.assert_allclose(chain.noised(one_hot, time), g["q_probs"], atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_posteriors_and_bounds_are_the_references(name, cases):
    about, g = cases(name)
    chain = matrices.TransitionMatrices.of(built(about)[1])
    noisy, clean = jnp.asarray(g["x_t"]), jnp.asarray(g["x_start"])
    time = jnp.asarray(g["t"] + 1, jnp.float32) / T
    times, start = (time, time - 1 / T), jax.nn.one_hot(clean, K)
    later = g["t"] > 0  # before the first step the reference has log(one-hot + eps)
    with_eps = jax.nn.softmax(chain.log_posterior(start, noisy, *times, EPS))
    np.testing.assert_allclose(with_eps[later], g["q_posterior_probs"][later], atol=1e-5)
    exact = jax.nn.softmax(chain.log_posterior(start, noisy, *times))
    np.testing.assert_allclose(exact[later], g["q_posterior_probs_exact"][later], atol=1e-5)
    logits = jnp.asarray(g["model_x_start_logits"])
    process, view = sj.transitions(chain, eps=EPS), toy_view(0, vocabulary=K, rows=8, width=9)
    view = view.replace(time=time, next_time=times[1], tokens=view.put(view.tokens, noisy))
    ours, theirs = jax.nn.log_softmax(process.log_q(logits, view)), g["p_logits"]
    np.testing.assert_allclose(ours, jax.nn.log_softmax(theirs), atol=1e-3)
    bits = lambda nats: np.asarray(nats).mean(axis=-1) / np.log(2)  # noqa: E731
    bound = transition_terms(chain, logits, clean, noisy, time, eps=EPS)
    np.testing.assert_allclose(bits(bound), g["vb_terms_bpd"], rtol=2e-3, atol=1e-5)
    np.testing.assert_allclose(
        bits(surprise(logits, clean)), g["cross_entropy_bpd"], rtol=2e-3, atol=1e-5
    )
    np.testing.assert_allclose(
        bits(prior_terms(chain, clean)), g["prior_bpd"], rtol=2e-3, atol=2e-4
    )


@pytest.mark.parametrize("name", few_quick(CASES, 2))
def test_every_state_is_the_recorded_one(name, cases, golden):
    about, g = cases(name)
    states, params = g["sample_states"], toy(golden)
    noise = -np.log(-np.log(np.maximum(g["sample_uniform"], np.finfo(np.float32).tiny)))
    sampler = sj.sampler(
        ToyD3PM(),
        sj.descent(9, T, final="argmax", extra=False),
        process=sj.transitions(built(about)[1], eps=EPS),
        noise=lambda keys, view, vocabulary: at_step(noise, view, T),
    )
    canvas = sj.canvas([[]] * 2, 9, mask_id=about["absorbing_state"])
    state = begin(sampler, params, KEY, canvas)
    state = state.replace(canvas=state.canvas.replace(tokens=jnp.asarray(states[0])))
    go = jax.jit(functools.partial(advance, sampler, params, KEY))
    for expected in states[1:]:
        state, _ = go(state)
        np.testing.assert_array_equal(state.canvas.tokens, expected)


def random_logits(vocabulary=17):
    return jnp.asarray(np.random.default_rng(5).normal(size=(4, 6, vocabulary)), jnp.float32)


def test_absorbing_matrices_are_masked_diffusion():
    """Any class may be the mask; with harmonic betas noise grows evenly, as MDLM's."""
    for state in (16, 3):
        view = toy_view(1).replace(
            tokens=jnp.full((4, 10), state), mask_id=jnp.int32(state),
            time=jnp.full(4, 0.75), next_time=jnp.full(4, 0.5),
        )  # fmt: skip
        steps = matrices.absorbing(matrices.harmonic_betas(8), 17, state)
        process = sj.transitions(steps, draws_mask=False)
        logits = process.clean(random_logits(), view)
        ours = jax.nn.softmax(process.log_q(logits, view))
        theirs = jax.nn.softmax(sj.absorbing().log_q(logits, view))
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_uniform_matrices_are_uniform_diffusion():
    """α falls evenly where betas are harmonic; the last step leaves nothing, as eps = 0."""
    view = toy_view(1).replace(time=jnp.full(4, 0.75), next_time=jnp.full(4, 0.25))
    steps = matrices.uniform(matrices.harmonic_betas(8), 17)
    ours = jax.nn.softmax(sj.transitions(steps).log_q(random_logits(), view))
    theirs = jax.nn.softmax(sj.uniform(0.0).log_q(random_logits(), view))
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


def own_matrices(seed, size=17, count=6):
    """Any matrices of a user's own: full, neither symmetric nor alike."""
    random = np.random.default_rng(seed).random((count, size, size)) + 3 * np.eye(size)
    return random / random.sum(axis=-1, keepdims=True)


def test_several_steps_at_once_are_their_product():
    steps = own_matrices(0)
    whole = sj.transitions(steps)
    pairs = sj.transitions(np.stack([a @ b for a, b in zip(steps[::2], steps[1::2], strict=True)]))
    view = toy_view(2).replace(time=jnp.full(4, 2 / 3), next_time=jnp.full(4, 1 / 3))
    np.testing.assert_allclose(
        jax.nn.softmax(whole.log_q(random_logits(), view)),
        jax.nn.softmax(pairs.log_q(random_logits(), view)),
        atol=2e-6,
    )
    still = view.replace(next_time=view.time)  # more steps than matrices: nothing moves
    tokens = np.asarray(view.window(view.tokens))
    assert np.array_equal(np.argmax(whole.log_q(random_logits(), still), axis=-1), tokens)


def test_any_matrices_give_the_sum_over_clean_tokens():
    """p(x_s | x_t) ∝ Σ_x p(x) q(x_s | x) q(x_t | x_s), one number at a time, from the matrices."""
    steps, logits = own_matrices(3), random_logits()
    view = toy_view(2).replace(time=jnp.full(4, 5 / 6), next_time=jnp.full(4, 3 / 6))
    found = np.asarray(jax.nn.softmax(sj.transitions(steps).log_q(logits, view)))
    to_s, s_to_t = np.linalg.multi_dot(steps[:3]), steps[3] @ steps[4]
    tokens, clean = np.asarray(view.window(view.tokens)), np.asarray(jax.nn.softmax(logits))
    for row, column in ((0, 0), (1, 3), (3, 5)):
        own = np.array([
            sum(clean[row, column, x] * to_s[x, later] for x in range(17))
            * s_to_t[later, tokens[row, column]]
            for later in range(17)
        ])  # fmt: skip
        np.testing.assert_allclose(found[row, column], own / own.sum(), atol=2e-6)


def test_rows_may_stand_at_different_times():
    process, view, logits = sj.transitions(own_matrices(0)), toy_view(2), random_logits()
    time, earlier = jnp.array([1.0, 0.5, 0.5, 1 / 6]), jnp.array([0.5, 1 / 3, 0.0, 0.0])
    together = process.log_q(logits, view.replace(time=time, next_time=earlier))
    for row in range(4):
        alone = view.replace(time=jnp.full(4, time[row]), next_time=jnp.full(4, earlier[row]))
        np.testing.assert_allclose(together[row], process.log_q(logits, alone)[row], atol=1e-5)


def test_a_run_begins_where_the_chain_ends():
    """A chain that ends at tokens 3 and 5 alone: that is where samples start."""
    end = np.zeros((17, 17))
    end[:, 3], end[:, 5] = 0.25, 0.75
    process = sj.transitions(end[None])
    sampler = sj.sampler(ToyDenoiser(), sj.descent(8, 2, final="draw"), process=process)
    canvas = sj.canvas([[1]], 8, mask_id=None, samples=64)
    start = np.asarray(begin(sampler, toy_params(0), KEY, canvas).canvas.tokens)[:, 1:]
    assert set(np.unique(start)) == {3, 5}
    assert abs((start == 5).mean() - 0.75) < 0.06
    done, info = sj.run(sampler, toy_params(0), KEY, canvas)
    assert bool(jnp.all(info.finite))
    assert len(np.unique(np.asarray(done.tokens)[:, 1:])) > 4


def test_the_exact_bound_is_finite_and_no_less_than_zero():
    steps = matrices.gaussian(matrices.linear_betas(6, 0.1, 0.5), 17, bands=2)
    chain = matrices.TransitionMatrices.of(steps)
    clean = jnp.asarray(np.random.default_rng(0).integers(0, 17, (4, 6)))
    time = jnp.array([1.0, 0.5, 1 / 3, 1 / 6])
    noisy = jnp.argmax(jnp.log(chain.noised(jax.nn.one_hot(clean, 17), time) + 1e-30), axis=-1)
    loss = lambda logits: transition_terms(chain, logits, clean, noisy, time).sum()  # noqa: E731
    value, slope = jax.value_and_grad(loss)(random_logits())
    assert np.isfinite(value)
    assert value > 0
    assert np.all(np.isfinite(slope))
    perfect = 60 * jax.nn.one_hot(clean, 17)
    assert loss(perfect) < 1e-3


def test_the_corrected_gaussian_has_the_same_width_for_any_number_of_values():
    """One step's deviation, in units of the range of values; the reference's is right for 256."""

    def deviation(size, **options):
        row = matrices.gaussian([0.02], size, **options)[0, size // 2]
        value = 2 * (np.arange(size) - size // 2) / (size - 1)
        return np.sqrt(np.sum(row * value**2))

    np.testing.assert_allclose(deviation(256), deviation(256, pixel_spacing=True), rtol=1e-12)
    np.testing.assert_allclose(deviation(64), deviation(256), rtol=0.01)
    assert deviation(64, pixel_spacing=True) < 0.5 * deviation(256)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sj.transitions(np.eye(3)), r"must have the shape \(T, V, V\)"),
        (lambda: sj.transitions(np.ones((2, 3, 3))), "must be probabilities"),
        (lambda: matrices.absorbing([0.5], 4, state=4), "state must be at most 3"),
        (lambda: matrices.uniform([0.0, 0.5], 4), "betas must be chances above 0"),
        (lambda: matrices.uniform([0.5], 4, bands=0), "bands must be at least 1"),
        (lambda: matrices.gaussian([0.5], 4, bands=4), "bands must be at most 3"),
        (lambda: sj.transitions(own_matrices(0), eps=-1.0), "eps must be at least 0"),
        (
            lambda: sj.transitions(own_matrices(0, size=5)).log_q(random_logits(), toy_view(0)),
            "must be for the denoiser's 17 tokens",
        ),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()
