"""Temperature and filters against plain numpy, and against an exact sort."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sake_jax as sj
from sake_jax.guidance.select import first_largest, threshold
from sake_jax.testing import toy_context, toy_params, toy_view

CTX = toy_context(toy_params(0), toy_view(0))
seeds = st.integers(0, 10_000)


def shape(guidance, logits, ctx=CTX):
    return np.asarray(guidance.apply(jnp.asarray(logits, jnp.float32), None, (), ctx)[0])


def random_logits(seed, vocabulary=40):
    return np.random.default_rng(seed).normal(size=(4, 6, vocabulary)).astype(np.float32) * 3


def kept(logits):
    return logits > -1e29


@given(seeds, st.integers(1, 40))
def test_top_k_keeps_the_k_highest(seed, count):
    logits = random_logits(seed)
    threshold = np.sort(logits, axis=-1)[..., -count][..., None]
    assert np.array_equal(kept(shape(sj.top_k(count), logits)), logits >= threshold)


@given(seeds, st.floats(0.01, 0.999))
def test_top_p_keeps_the_fewest_that_reach_p_with_the_crossing_token(seed, mass):
    logits = random_logits(seed)
    p = np.asarray(jax.nn.softmax(jnp.asarray(logits)), np.float64)
    order = np.argsort(-p, axis=-1)
    before = np.cumsum(np.take_along_axis(p, order, axis=-1), axis=-1)
    before = before - np.take_along_axis(p, order, axis=-1)  # mass strictly before a token
    borderline = np.any(np.abs(before - mass) < 1e-6)
    expected = np.zeros_like(p, dtype=bool)
    np.put_along_axis(expected, order, before < mass, axis=-1)
    if not borderline:
        assert np.array_equal(kept(shape(sj.top_p(mass), logits)), expected)


def test_top_p_keeps_the_token_that_crosses():
    logits = np.log(np.broadcast_to([0.5, 0.3, 0.15, 0.05], (4, 6, 4)))
    assert kept(shape(sj.top_p(0.6), logits))[0, 0].tolist() == [True, True, False, False]
    assert kept(shape(sj.top_p(0.4), logits))[0, 0].tolist() == [True, False, False, False]


def test_filters_keep_ties_on_both_sides_of_zero():
    logits = np.broadcast_to([0.0, -0.0, -1.0, -2.0], (4, 6, 4))
    assert kept(shape(sj.top_k(1), logits))[0, 0].tolist() == [True, True, False, False]
    assert kept(shape(sj.top_p(0.01), logits))[0, 0].tolist() == [True, True, False, False]


def test_min_p():
    logits = np.log(np.broadcast_to([0.6, 0.3, 0.07, 0.03], (4, 6, 4)))
    assert kept(shape(sj.min_p(0.1), logits))[0, 0].tolist() == [True, True, True, False]


def test_forbid_leaves_a_finite_minimum():
    out = shape(sj.forbid([1, 3]), random_logits(0))
    assert not kept(out)[..., [1, 3]].any()
    assert kept(out)[..., [0, 2, 4]].all()
    assert np.isfinite(out).all()


def test_temperature_divides_and_zero_is_the_argmax():
    logits = random_logits(1)
    np.testing.assert_allclose(shape(sj.temperature(0.5), logits), logits * 2, rtol=1e-6)
    cold = shape(sj.temperature(0.0), logits)
    assert (kept(cold).sum(axis=-1) == 1).all()
    assert np.array_equal(cold.argmax(axis=-1), logits.argmax(axis=-1))
    tied = np.zeros((4, 6, 5))
    assert (shape(sj.temperature(0.0), tied).argmax(axis=-1) == 0).all()


@pytest.mark.parametrize("value", [1e-30, 1e-6, 1e30])
def test_extreme_temperatures_stay_finite(value):
    logits = np.where(random_logits(2) > 3, -1e30, random_logits(2))
    assert np.isfinite(shape(sj.temperature(value), logits)).all()


def test_numbers_may_be_schedules_or_one_per_row():
    logits = random_logits(3)
    ctx = toy_context(toy_params(0), toy_view(0).replace(progress=jnp.array([0.0, 0.5, 0.75, 1.0])))
    out = shape(sj.temperature(sj.linear(1.0, 3.0)), logits, ctx)
    per_row = np.array([1.0, 2.0, 2.5, 3.0])[:, None, None]
    np.testing.assert_allclose(out, logits / per_row, rtol=1e-5)
    by_hand = shape(sj.temperature(jnp.array([1.0, 2.0, 2.5, 3.0])), logits, ctx)
    np.testing.assert_allclose(out, by_hand, rtol=1e-6)


def test_schedules():
    progress = jnp.array([0.0, 0.5, 1.0])
    assert sj.linear(1.0, 3.0)(progress).tolist() == [1.0, 2.0, 3.0]
    np.testing.assert_allclose(sj.cosine(1.0, 0.0)(progress), [1.0, 0.5, 0.0], atol=1e-6)
    assert sj.piecewise({0.0: 5.0, 0.5: 7.0})(progress).tolist() == [5.0, 7.0, 7.0]
    assert sj.schedule(jnp.maximum, 0.3)(progress).tolist() == pytest.approx([0.3, 0.5, 1.0])


def test_when_switches_at_its_bounds():
    logits = jnp.asarray(random_logits(4))
    progress = jnp.array([0.1, 0.2, 0.79, 0.8])
    ctx = toy_context(toy_params(0), toy_view(0).replace(progress=progress))
    out, _, _ = sj.when(sj.temperature(0.5), 0.2, 0.8).apply(logits, None, (), ctx)
    changed = ~np.all(np.isclose(out, logits), axis=(1, 2))
    assert changed.tolist() == [False, True, True, False]


def test_transform_gets_its_numbers():
    def scale(logits, ctx, factor):
        return logits * factor

    logits = random_logits(5)
    np.testing.assert_allclose(shape(sj.transform(scale, 2.0), logits), logits * 2)


@given(seeds)
def test_threshold_is_an_order_statistic(seed):
    random = np.random.default_rng(seed)
    values = np.round(random.normal(size=(3, 25)) * 3).astype(np.float32)  # many ties
    for rank in (1, 2, 13, 25):
        found = threshold(jnp.asarray(values), jnp.ones((3, 25)), jnp.full(3, rank, jnp.float32))
        assert np.array_equal(found, np.sort(values, axis=-1)[:, -rank])
    beyond = threshold(jnp.asarray(values), jnp.ones((3, 25)), jnp.full(3, 26.0))
    assert np.isneginf(np.asarray(beyond)).all()


def test_first_largest_is_argmax_and_takes_the_first_of_equals():
    random = np.random.default_rng(0)
    values = jnp.asarray(random.integers(0, 4, (5, 3, 11)), jnp.float32)
    np.testing.assert_array_equal(first_largest(values), jnp.argmax(values, axis=-1))
    assert int(first_largest(jnp.array([1.0, jnp.nan, 0.0]))) == 2
    assert int(first_largest(jnp.full(4, -jnp.inf))) == 0
