"""Losses against those of the original implementations; noise against its own definition."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import model

import sake_jax as sj
from sake_jax.losses import (
    absorb,
    absorb_exactly,
    denoising_terms,
    masked_terms,
    scatter,
    score_entropy,
    spread,
    surprise,
    uniform_terms,
)
from sake_jax.noise_levels import log_expm1

KEY = jax.random.key(0)
NOISES = {"loglinear": sj.LogLinear(), "geometric": sj.Geometric(1e-4, 20.0)}


def close(ours, theirs):
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=2e-4, atol=2e-4)


def test_llada_log_likelihood_equals_the_reference(golden):
    lm, g = model("llada"), golden("llada/loglik_llada.npz")
    cases = golden("llada/loglik_llada.json")["cases"]
    recorded = np.concatenate([g[f"{case}/perturbed_seq"] for case in cases])
    bare = recorded.copy()
    bare[..., : len(g["prompt"])] = lm.config.mask_id
    logits = lm.logits(np.concatenate([recorded, bare]).reshape(-1, recorded.shape[-1]))
    logits, other = logits.reshape(2, *recorded.shape, -1)
    first = 0
    for case, args in cases.items():
        noisy, share = (jnp.asarray(g[f"{case}/{name}"]) for name in ("perturbed_seq", "p_mask"))
        clean = jnp.broadcast_to(np.concatenate([g["prompt"], g["answer"]]), noisy.shape)
        own = slice(first, first := first + len(noisy))
        guided = other[own] + (args["cfg_scale"] + 1) * (logits[own] - other[own])
        terms = jax.vmap(lambda *of: masked_terms(*of, lm.config.mask_id))
        terms = jax.jit(terms)(guided, clean, noisy, share)
        close(terms * share, np.nan_to_num(g[f"{case}/token_ce"]))
        per_iter = terms.sum(axis=(1, 2)) / args["batch_size"]
        close(per_iter, g[f"{case}/loss_per_iter"])
        close(-per_iter.mean(), args["log_likelihood"])


def test_mdlm_loss_equals_the_reference(golden):
    g = {name: jnp.asarray(array) for name, array in golden("mdlm/golden_loss.npz").items()}
    logits = model("mdlm").logits(g["xt"])
    close(
        masked_terms(logits, g["x0"], g["xt"], g["t"], 259, predicts_mask=False),
        g["loss_per_token"],
    )


def test_bd3lm_loss_equals_the_reference(golden):
    g = {name: jnp.asarray(array) for name, array in golden("bd3lm/golden.npz").items()}
    logits = model("bd3lm").logits(g["xt"], clean=g["x0"])
    close(
        masked_terms(logits, g["x0"], g["xt"], g["t"], 259, predicts_mask=False),
        g["loss_per_token"],
    )


def test_udlm_losses_equal_the_reference(golden):
    lm, g = model("udlm"), golden("udlm/golden.npz")
    g = {name: jnp.asarray(array) for name, array in g.items()}
    logits = lm.logits(g["input_ids"], sigma=g["sigma"])
    diffusion = jax.jit(uniform_terms)(logits, g["x0"], g["input_ids"], g["t"])
    reconstruction = surprise(lm.logits(g["x0"], sigma=jnp.zeros(2)), g["x0"])
    close(diffusion, g["diffusion_loss"])
    close(reconstruction, g["recon_loss"])
    close(diffusion + reconstruction, g["loss"])


@pytest.mark.parametrize("family", ["sedd", "sedd_uniform"])
@pytest.mark.parametrize("name", NOISES)
def test_sedd_losses_equal_the_reference(family, name, golden):
    lm, g = model(family), golden(f"{family}/golden_loss.npz")
    noise, time = NOISES[name], jnp.asarray(g["t"])
    sigma, rate = noise.total(time), noise.rate(time)
    np.testing.assert_allclose(sigma, g[f"{name}/sigma"], rtol=2e-4)
    np.testing.assert_allclose(rate, g[f"{name}/dsigma"], rtol=2e-4)
    noisy, clean = jnp.asarray(g[f"{name}/xt"]), jnp.asarray(g["x0"])
    scores = lm.logits(noisy, sigma=g[f"{name}/sigma"])
    np.testing.assert_allclose(scores, g[f"{name}/log_score"], atol=2e-4)
    ours = jax.jit(score_entropy)(scores, clean, noisy, sigma, lm.config.mask_id)
    np.testing.assert_allclose(ours, g[f"{name}/score_entropy"], rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(rate * ours.sum(axis=1), g[f"{name}/loss"], rtol=2e-3)


def test_radd_losses_equal_the_reference(golden):
    lm, g = model("radd"), golden("radd/golden_loss.npz")
    g = {
        name: jnp.asarray(array, array.dtype.name.replace("64", "32")) for name, array in g.items()
    }
    clean, mask_id = g["x0"], lm.config.mask_id
    near = functools.partial(np.testing.assert_allclose, rtol=2e-3)
    for name, noise in NOISES.items():
        for kind in ("t_DSE", "t_DCE"):
            at = {key: g[f"{name}/{kind}/{key}"] for key in ("xt", "t", "sigma", "dsigma", "loss")}
            logits = lm.logits(at["xt"])
            if kind == "t_DCE":
                own = denoising_terms(logits, clean, at["xt"], at["t"], mask_id, noise)
                # The original's logarithm holds a constant more.
                offset = log_expm1(at["sigma"]) / jnp.expm1(at["sigma"]) * at["dsigma"]
                masked = jnp.sum(at["xt"] == mask_id, axis=1).astype(jnp.float32)
                near(own.sum(axis=1) + offset * masked, at["loss"])
                continue
            log_p = jax.nn.log_softmax(logits.at[..., mask_id].set(-1e30))
            scores = log_p - log_expm1(at["sigma"])[:, None, None]
            terms = score_entropy(scores, clean, at["xt"], at["sigma"], mask_id)
            near(at["dsigma"] * terms.sum(axis=1), at["loss"])
    terms = functools.partial(masked_terms, mask_id=mask_id, predicts_mask=False)
    noisy, time = g["lambda_DCE/xt"], g["lambda_DCE/lambda"]
    near(terms(lm.logits(noisy), clean, noisy, time).sum(axis=1), g["lambda_DCE/loss"])
    noisy, time = g["k_DCE/xt"], g["k_DCE/k"].astype(jnp.float32) / clean.shape[1]
    near(terms(lm.logits(noisy), clean, noisy, time).sum(axis=1), g["k_DCE/loss"])


@pytest.mark.parametrize("order", ["ar_forward", "ar_backward"])
def test_radd_likelihood_in_an_order_equals_the_reference(order, golden):
    lm, g = model("radd"), golden("radd/golden_loss.npz")
    ours = sj.log_likelihood_in_order(lm, g["x0"], g[f"{order}/order"])
    np.testing.assert_allclose(-ours, g[f"{order}/loss"], rtol=2e-4)


def test_score_entropy_is_zero_for_true_scores_and_has_finite_gradients():
    size, sigma = 6, jnp.array([0.3, 2.0])
    clean, noisy = jnp.array([[0, 1, 2]] * 2), jnp.array([[5, 1, 5], [0, 1, 5]])
    for mask_id in (5, None):
        kept = jnp.exp(-sigma)[:, None, None]
        away = jax.nn.one_hot(5, size) if mask_id else jnp.full(size, 1 / size)
        away = (1 - kept) * away[None, None]
        chance = kept * jax.nn.one_hot(clean, size) + away
        scores = jnp.log(chance / jnp.take_along_axis(chance, noisy[..., None], -1) + 1e-30)
        terms = functools.partial(
            score_entropy, clean=clean, noisy=noisy, sigma=sigma, mask_id=mask_id
        )
        np.testing.assert_allclose(terms(scores), 0, atol=1e-4)
        worse = np.asarray(terms(scores + 0.5))
        assert np.all(worse[noisy == 5] > 1e-4)
        slope = jax.grad(lambda x, terms=terms: terms(x).sum())(jnp.zeros_like(scores))
        assert np.all(np.isfinite(slope))
        assert mask_id is None or np.all(np.asarray(slope)[noisy != 5] == 0)


def test_exact_counts_are_exact_in_every_block():
    keys = jax.random.split(KEY, 500)
    clean, block = jnp.zeros((500, 8), jnp.int32), jnp.arange(8) // 4
    opens = jnp.broadcast_to(jnp.array([False] + [True] * 7), clean.shape)
    count = jnp.broadcast_to(jnp.array([2] * 4 + [3] * 4), clean.shape)
    hidden = np.asarray(jax.jit(absorb_exactly)(keys, clean, opens, count, block, 9)) == 9
    assert np.all(hidden[:, :4].sum(axis=1) == 2)
    assert np.all(hidden[:, 4:].sum(axis=1) == 3)
    np.testing.assert_allclose(hidden.mean(axis=0), [0] + [2 / 3] * 3 + [3 / 4] * 4, atol=0.08)


def test_noise_comes_as_often_as_its_time_says():
    keys = jax.random.split(KEY, 2000)
    clean, opens = jnp.full((2000, 4), 5), jnp.array([[True, True, True, False]] * 2000)
    time = jnp.broadcast_to(jnp.array([0.1, 0.5, 0.9, 0.9]), clean.shape)
    masked = np.asarray(jax.jit(absorb)(keys, clean, opens, time, 9))
    np.testing.assert_allclose((masked == 9).mean(axis=0), [0.1, 0.5, 0.9, 0], atol=0.04)
    drawn = np.asarray(jax.jit(scatter)(keys, clean, opens, jnp.full(2000, 0.8), 8))
    np.testing.assert_allclose((drawn != 5).mean(axis=0), [0.7, 0.7, 0.7, 0], atol=0.04)
    assert set(np.unique(drawn)) == set(range(8))
    evenly = np.sort(np.asarray(spread(jnp.float32(0.93), jnp.arange(10), 10)))
    np.testing.assert_allclose(evenly, np.arange(10) / 10 + 0.03, atol=1e-6)


def test_losses_have_finite_gradients_and_none_for_the_mask():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 6)), jnp.float32)
    clean, noisy = jnp.array([[0, 1, 2]] * 2), jnp.array([[5, 1, 5], [0, 1, 2]])
    time = jnp.array([0.5, 0.0])  # at 0 nothing is masked
    masked = lambda x: masked_terms(x, clean, noisy, time, 5, predicts_mask=False).sum()  # noqa: E731
    value, slope = map(np.asarray, jax.jit(jax.value_and_grad(masked))(logits))
    assert np.isfinite(value)
    assert np.all(np.isfinite(slope))
    assert np.all(slope[..., 5] == 0)
    assert np.all(slope[1] == 0)
    assert np.any(slope[0, [0, 2]] != 0)
    uniform = lambda x: uniform_terms(x, clean, noisy, time + 0.1).sum()  # noqa: E731
    assert np.all(np.isfinite(jax.jit(jax.grad(uniform))(logits)))
