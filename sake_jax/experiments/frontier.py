"""Trade-offs between two quantities of which more is better."""

from collections.abc import Sequence

import numpy as np

import sake_jax as sj
from sake_jax.checks import require


def non_dominated(points: Sequence[Sequence[float]] | np.ndarray) -> np.ndarray:
    """(N,) which points no other one beats: as good in both, better in one."""
    points = _checked(points)
    beaten = [
        bool(np.any(np.all(points >= own, axis=1) & np.any(points > own, axis=1))) for own in points
    ]
    return ~np.asarray(beaten, bool)


def hypervolume(
    points: Sequence[Sequence[float]] | np.ndarray, reference: Sequence[float] = (0.0, 0.0)
) -> float:
    """The area that points dominate, above a reference that is worse than all that matters."""
    points = np.maximum(_checked(points), np.asarray(reference, float))
    front = points[non_dominated(points)]
    front = front[np.argsort(-front[:, 0], kind="stable")]  # from the right, so upwards
    rises = np.diff(front[:, 1], prepend=reference[1])
    return float(np.sum((front[:, 0] - reference[0]) * np.maximum(rises, 0)))


def at_equal(
    points: Sequence[Sequence[float]] | np.ndarray, first: Sequence[float] | np.ndarray
) -> np.ndarray:
    """The second quantity of a method where it has these values of the first, by straight lines
    between its points; at the nearest end outside of them."""
    points = _checked(points)
    points = points[np.argsort(points[:, 0], kind="stable")]
    return np.interp(np.asarray(first, float), points[:, 0], points[:, 1])


def gains(own: np.ndarray, base: np.ndarray, *, beyond: bool = False) -> np.ndarray:
    """(settings, seeds) the second quantity above a baseline's where the first is equal, seed by
    seed; both are (settings, seeds, 2). Where the baseline has no such value it is not a number,
    or with `beyond` what is above the baseline's nearest end.
    """
    each = []
    for seed in range(own.shape[1]):
        first, second = own[:, seed].T
        gained = second - at_equal(base[:, seed], first)
        low, high = base[:, seed, 0].min(), base[:, seed, 0].max()
        inside = (first >= low) & (first <= high)
        each.append(np.where(inside | beyond, gained, np.nan))
    return np.stack(each, axis=1)


def comparable(gained: np.ndarray) -> np.ndarray:
    """(settings,) which of them the baseline can be compared with on every seed."""
    return np.asarray(~np.isnan(gained).any(axis=1))


def interval(
    runs: Sequence[float] | np.ndarray, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """The bootstrap interval of the mean over runs.

    Of few runs it is too narrow: a resample holds no values that were not seen.
    """
    _, low, high = sj.metrics.estimate(runs, level=level, draws=draws, seed=seed)
    return low, high


def _checked(points: Sequence[Sequence[float]] | np.ndarray) -> np.ndarray:
    points = np.asarray(points, float)
    rule = "points must be pairs of numbers"
    right = points.ndim == 2 and points.shape[1] == 2 and bool(np.isfinite(points).all())
    require(right, rule, points, "give (quality, diversity) of each")
    return points
