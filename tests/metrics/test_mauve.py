"""MAUVE through its package: the ends of its range, its options, and what it asks for."""

import importlib.util
import sys

import numpy as np
import pytest

from sake_jax.metrics.mauve import mauve

needs_mauve = pytest.mark.skipif(
    importlib.util.find_spec("mauve") is None, reason="mauve-text is not installed"
)


@pytest.mark.slow  # its clustering library takes seconds to import
@needs_mauve
def test_the_same_and_different_texts():
    random = np.random.default_rng(0)
    human, like, unlike = (random.normal(shift, 1, (200, 8)) for shift in (0, 0, 3))
    near, far = mauve(human, like), mauve(human, unlike)
    assert far < 0.1 < 0.9 < near <= 1
    assert mauve(human, like) == near, "the seed decides"
    for options in ({"seed": 1}, {"buckets": 8}, {"scale": 1.0}):
        assert mauve(human, like, **options) != near, options


def test_features_of_two_encoders():
    with pytest.raises(ValueError, match="one encoder for both"):
        mauve(np.ones((4, 2)), np.ones((4, 3)))
    with pytest.raises(ValueError, match="buckets must be at least 2"):
        mauve(np.ones((4, 2)), np.ones((4, 2)), buckets=1)


def test_a_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "mauve", None)
    with pytest.raises(ValueError, match="pip install mauve-text"):
        mauve(np.ones((4, 2)), np.ones((4, 2)))
