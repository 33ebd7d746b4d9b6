"""Frontiers, by hand and by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sake_jax.experiments.frontier import (
    at_equal,
    comparable,
    gains,
    hypervolume,
    interval,
    non_dominated,
)

POINTS = [(0.2, 0.9), (0.5, 0.5), (0.4, 0.4), (0.9, 0.1), (0.5, 0.3)]
some = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=8)


def test_points_that_nothing_beats():
    assert non_dominated(POINTS).tolist() == [True, True, False, True, False]
    assert non_dominated([(1, 1), (1, 1)]).tolist() == [True, True], "equals do not beat"


def test_the_area_by_hand():
    assert hypervolume([(0.5, 0.5)]) == pytest.approx(0.25)
    assert hypervolume(POINTS) == pytest.approx(0.2 * 0.9 + 0.3 * 0.5 + 0.4 * 0.1)
    assert hypervolume(POINTS, reference=(0.3, 0.2)) == pytest.approx(0.2 * 0.3)
    assert hypervolume([(0.1, 0.1)], reference=(0.3, 0.2)) == 0


@settings(max_examples=50, deadline=None)
@given(some)
def test_the_area_is_the_share_of_the_square_that_points_dominate(points):
    cells = [(x, y) for x in range(8) for y in range(8)]
    inside = [any(a > x and b > y for a, b in points) for x, y in cells]
    assert hypervolume(points) == pytest.approx(sum(inside))


def test_between_points_by_straight_lines_and_at_the_ends():
    found = at_equal([(1.0, 0.2), (0.0, 1.0)], [0.0, 0.25, 1.0, 2.0, -1.0])
    np.testing.assert_allclose(found, [1.0, 0.8, 0.2, 0.2, 1.0])


def test_gains_extrapolate_only_where_asked():
    base = np.repeat([[[-3, 0.9]], [[-1, 0.5]]], 2, axis=1)
    own = np.repeat([[[-2, 0.8]], [[-0.9, 0.9]]], 2, axis=1)
    gained = gains(own, base)
    np.testing.assert_allclose(gained, [[0.1, 0.1], [np.nan, np.nan]])
    assert comparable(gained).tolist() == [True, False]
    np.testing.assert_allclose(gains(own, base, beyond=True), [[0.1, 0.1], [0.4, 0.4]])
    turned = gains(base, own)
    assert np.isnan(turned[0]).all()
    np.testing.assert_allclose(turned[1], 0.5 - (0.8 + 0.1 / 1.1))


def test_intervals_hold_the_mean_and_shrink_with_runs():
    random = np.random.default_rng(0)
    few, many = (random.normal(3, 1, size) for size in (8, 800))
    for runs in (few, many):
        low, high = interval(runs)
        assert low < runs.mean() < high
    assert np.diff(interval(many)) < np.diff(interval(few)) / 5
    narrow, usual = np.diff(interval(few, level=0.5)), np.diff(interval(few))
    assert narrow < usual
    assert interval(few, draws=100, seed=1) != interval(few, draws=100, seed=2)


@pytest.mark.parametrize("points", [np.ones(2), [(1, 2, 3)], [(1, np.nan)]])
def test_points_must_be_pairs_of_numbers(points):
    with pytest.raises(ValueError, match="pairs of numbers"):
        hypervolume(points)
    with pytest.raises(ValueError, match="needs scores"):
        interval([])
