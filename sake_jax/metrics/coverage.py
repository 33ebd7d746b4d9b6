"""Density and coverage (Naeem et al. 2020): how much of a target is reached, how faithfully."""

from typing import NamedTuple

import numpy as np

from sake_jax.checks import require


class Coverage(NamedTuple):
    """Of generated points against real ones."""

    density: float
    """How many neighbourhoods of real points a generated one lies in, over k: fidelity. About 1
    for the target itself, more for points crowded where the target is dense."""
    coverage: float
    """The share of real points with a generated one in their neighbourhood: diversity."""


def coverage(real: np.ndarray, generated: np.ndarray, k: int = 5) -> Coverage:
    """Compares (N, D) and (M, D) points.

    A real point's neighbourhood is the ball that reaches its k-th nearest other real point.

    >>> real = np.arange(10.0)[:, None]
    >>> coverage(real, real[:5], k=1)  # the points from 6 on have no generated one near
    Coverage(density=2.8, coverage=0.6)
    """
    rule = "real must have more than k points"
    require(len(real) > k, rule, len(real), f"give more than {k}, or lower k")
    among = _squared_distances(real, real)
    radius = np.partition(among, k, axis=1)[:, k]  # the nearest is the point itself
    inside = _squared_distances(real, generated) <= radius[:, None]
    return Coverage(float(inside.sum() / (k * len(generated))), float(inside.any(axis=1).mean()))


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None] - 2 * a @ b.T
    return np.maximum(squares, 0)
