"""Density and coverage, by hand and by their meaning."""

import numpy as np
import pytest

from sake_jax.metrics.coverage import coverage

LINE = np.arange(6.0)[:, None]


def test_by_hand():
    """With k = 1 every neighbourhood has radius 1."""
    found = coverage(LINE, np.asarray([[1.5], [10.0]]), k=1)
    assert found.coverage == pytest.approx(2 / 6), "only 1 and 2 have a neighbour"
    assert found.density == pytest.approx(2 / (1 * 2))
    wider = coverage(LINE, np.asarray([[1.5], [10.0]]), k=2)
    assert wider.coverage == pytest.approx(3 / 6), "0 reaches as far as 2"
    assert wider.density == pytest.approx(3 / (2 * 2))


def test_the_target_itself_a_collapse_and_a_mistake():
    random = np.random.default_rng(0)
    real, same, far = (random.normal(size=(500, 2)) for _ in range(3))
    found = coverage(real, same)
    assert found.density == pytest.approx(1, abs=0.1)
    assert found.coverage > 0.9
    collapsed = coverage(real, np.zeros((500, 2)) + 0.01 * same)
    assert collapsed.coverage < 0.1
    assert collapsed.density > 0.5
    assert coverage(real, far + 50) == (0, 0)


def test_needs_more_points_than_neighbours():
    with pytest.raises(ValueError, match="more than k points"):
        coverage(LINE, LINE, k=6)
