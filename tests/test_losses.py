"""Losses against those of the original implementations; noise against its own definition."""

import jax
import jax.numpy as jnp
import numpy as np
from replay import model

from sake_jax.losses import (
    absorb,
    absorb_exactly,
    masked_terms,
    scatter,
    spread,
    surprise,
    uniform_terms,
)

KEY = jax.random.key(0)


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
