"""Proposition 1 as an instrument."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sake_jax as sj
from sake_jax.guidance import budget
from sake_jax.guidance.entropy import (
    contrast_terms,
    correlation,
    covariance,
    entropy_slope,
    kl_divergence,
    shannon_entropy,
    temperature_strength,
)

seeds = st.integers(0, 10_000)


def draw(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) * 2, jnp.float32)


@given(seeds, st.floats(-2, 2))
def test_slope_is_the_derivative_of_the_entropy(seed, strength):
    z, psi = draw(seed, 30), draw(seed + 1, 30)
    slope = jax.grad(lambda gamma: shannon_entropy(z + gamma * psi))(jnp.float32(strength))
    assert float(entropy_slope(z, psi, strength)) == pytest.approx(float(slope), abs=2e-5)


@given(seeds)
def test_temperature_is_guidance_along_the_logits(seed):
    z = draw(seed, 30)
    for tau in (0.5, 0.8, 2.0):
        gamma = temperature_strength(tau)
        np.testing.assert_allclose(
            jax.nn.softmax(z + gamma * z), jax.nn.softmax(z / tau), atol=1e-6
        )
    variance = covariance(z, z, z)
    assert float(entropy_slope(z, z)) == pytest.approx(-float(variance), rel=1e-5)
    assert float(correlation(z, z, 3 * z + 1)) == pytest.approx(1, abs=1e-5)


@given(seeds)
def test_contrast_decomposes(seed):
    unconditional, conditional = draw(seed, 30), draw(seed + 1, 30)
    variance, shared = contrast_terms(unconditional, conditional)
    slope = entropy_slope(unconditional, conditional - unconditional)
    assert float(variance - shared) == pytest.approx(float(slope), abs=1e-4)


def test_tokens_of_no_probability_do_not_count():
    z = jnp.array([1.0, 0.0, -1e30])
    psi = jnp.array([1.0, 2.0, 1e30])
    assert np.isfinite(entropy_slope(z, psi * jnp.array([1.0, 1.0, 0.0])))
    assert float(shannon_entropy(z)) == pytest.approx(float(shannon_entropy(z[:2])))
    assert float(kl_divergence(z, jnp.zeros(3))) == pytest.approx(
        float(jnp.log(3.0) - shannon_entropy(z)), rel=1e-5
    )
    assert np.isfinite(covariance(z, z, psi))


@given(seeds, st.floats(1e-3, 3.0), st.floats(0.01, 300.0))
def test_budget_is_kept_and_used(seed, nats, size):
    """Never above by more than 1e-3; within 2 % of it where the cap binds."""
    z, psi = draw(seed, 20, 60), size * draw(seed + 1, 20, 60)
    cap = jnp.full(20, nats, jnp.float32)
    fraction = jax.jit(budget.fraction)(z, psi, cap)
    moved = kl_divergence(z + fraction[:, None] * psi, z)
    assert float(jnp.max(moved - cap)) < 1e-3
    binds = np.asarray(kl_divergence(z + psi, z)) > nats
    assert (np.asarray(fraction)[~binds] == 1).all()
    np.testing.assert_array_less(0.98 * nats - 1e-6, np.asarray(moved)[binds])


@pytest.mark.parametrize("nats", [0.05, 0.5])
def test_budget_with_spikes_and_forbidden_tokens(nats):
    z = draw(0, 8, 50).at[:, ::3].set(-1e30)
    psi = draw(1, 8, 50).at[:, 4].add(200.0)
    cap = jnp.full(8, nats, jnp.float32)
    moved = kl_divergence(z + budget.fraction(z, psi, cap)[:, None] * psi, z)
    assert bool(jnp.all(moved <= nats + 1e-3))
    assert bool(jnp.all(moved >= 0.98 * nats))


def test_budget_of_a_signal_that_does_nothing():
    z = draw(0, 3, 10)
    cap = jnp.full(3, 0.1, jnp.float32)
    assert (np.asarray(budget.fraction(z, jnp.zeros_like(z), cap)) == 1).all()


def test_the_slopes_of_a_budget():
    """Twice the signal is half the fraction, and a larger budget a larger one, by differences."""
    z, psi = draw(0, 20, 60), 3 * draw(1, 20, 60)
    cap = jnp.full(20, 0.1, jnp.float32)
    free = np.asarray(kl_divergence(z + psi, z)) <= 0.1
    fraction = lambda size, cap: budget.fraction(z, size * psi, cap)  # noqa: E731
    found = np.asarray(fraction(1.0, cap))
    slope = np.asarray(jax.jacfwd(fraction)(1.0, cap))
    np.testing.assert_allclose(slope[~free], -found[~free], rtol=1e-2)
    assert (slope[free] == 0).all()
    rise = jax.grad(lambda cap: jnp.sum(fraction(1.0, cap)))(cap)
    step = (fraction(1.0, cap + 0.01) - fraction(1.0, cap - 0.01)) / 0.02
    np.testing.assert_allclose(rise[~free], step[~free], rtol=2e-2)


def test_sake_under_a_budget():
    """The cap holds in the guidance itself, at open positions."""
    from sake_jax.testing import outcome, toy_params, toy_view

    scene = toy_params(0), toy_view(0)
    capped, base = outcome(sj.sake(50.0, kl_budget=0.2), *scene)
    free, _ = outcome(sj.sake(50.0), *scene)
    assert float(jnp.max(kl_divergence(capped, base))) <= 0.2 + 1e-3
    assert float(jnp.max(kl_divergence(free, base))) > 0.2
