"""Random groups of rows for the tests of kernels, objectives and forces."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from sake_jax.guidance.kernels import Peers

seeds = st.integers(0, 2**31)

SHAPES = [(2, 1, 1), (9, 5, 3), (16, 3, 16), (23, 40, 8)]
"""Length, width, window: a few, since each is a program to compile."""


def scene(seed: int, dtype=jnp.float32) -> tuple[jax.Array, Peers]:
    """A random group: some length, width, window, padding, duplicates and bandwidths."""
    random = np.random.default_rng(seed)
    length, width, window = SHAPES[seed % len(SHAPES)]
    start = random.integers(0, length - window + 1)
    rows = random.normal(size=(length, width)) * random.uniform(0.2, 3)
    rows[random.integers(0, length)] = rows[random.integers(0, length)]  # often a duplicate
    rows -= rows.mean(axis=0)
    weight = (random.random(length) < 0.8) | (np.arange(length) == start)
    index = start + np.arange(window)
    peers = Peers(
        rows=jnp.asarray(rows, dtype),
        positions=jnp.arange(length),
        weight=jnp.asarray(weight, dtype),
        index=jnp.asarray(index),
        bandwidth=jnp.asarray(random.uniform(0.3, 3) * np.sqrt(width), dtype),
        attention_bandwidth=jnp.asarray(random.uniform(0.5, 30), dtype),
        offset=jnp.zeros(window, dtype),
    )
    return peers.rows[index], peers


def group(rows, bandwidth=2.0, attention_bandwidth=5.0) -> Peers:
    """All rows against all rows."""
    length = rows.shape[0]
    return Peers(
        rows=rows,
        positions=jnp.arange(length),
        weight=jnp.ones(length),
        index=jnp.arange(length),
        bandwidth=jnp.asarray(bandwidth),
        attention_bandwidth=jnp.asarray(attention_bandwidth),
        offset=jnp.zeros(length),
    )


def assert_close(actual, expected, tolerance, scale=None):
    """Within `tolerance` of the scale, the largest expected entry by default."""
    if np.size(expected) == 0:
        return
    scale = np.abs(expected).max() if scale is None else scale
    assert np.abs(np.asarray(actual) - np.asarray(expected)).max() <= tolerance * scale + 1e-30
