"""A mean with the interval that the choice of what was measured leaves it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sake_jax.checks import require, whole


class Estimate(NamedTuple):
    """A mean, and its bootstrap interval.

    >>> value, low, high = Estimate(0.5, low=0.25, high=0.75)
    """

    value: float
    low: float
    high: float


def estimate(
    scores: Sequence[float] | np.ndarray, *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> Estimate:
    """The mean of scores, with the bootstrap interval over what was scored.

    It tells how much that choice matters: of the problems where each has one score, of the seeds
    where each run has one. Scores must be independent of each other. Of few it is too narrow, for
    a resample holds no values that were not seen; where all are equal it has no width.

    >>> value, low, high = estimate([0.0, 1.0, 1.0, 0.0])
    >>> value, low < value < high
    (0.5, True)

    Args:
      scores: one for each problem, prompt, run or seed.
      level: how often the interval should hold the true mean.
      draws: resamples.
      seed: of the resamples.
    """
    scores = np.asarray(scores, np.float64)
    require(scores.ndim == 1 and scores.size, "an estimate needs scores", scores, "give some")
    require(0 < level < 1, "level must be between 0 and 1", level, "such as 0.95")
    # A resample's mean only needs how often each value was drawn, and values are few.
    values, counts = np.unique(scores, return_counts=True)
    random, size = np.random.default_rng(seed), len(scores)
    drawn = random.multinomial(size, counts / size, whole("draws", draws))
    tail = (1 - level) / 2
    low, high = np.quantile(drawn @ values / size, [tail, 1 - tail])
    return Estimate(float(scores.mean()), float(low), float(high))


def format_interval(scores: Estimate | Sequence[float] | np.ndarray, form: str = ".3f") -> str:
    """A mean and its interval, for a table: an estimate, or scores that it is made of.

    It is empty where there are no scores, or where some are no numbers.

    >>> format_interval(Estimate(0.5, low=0.25, high=0.75))
    '0.500 (0.250 to 0.750)'
    >>> format_interval([2.0, 2.0], "+.1f")
    '+2.0 (+2.0 to +2.0)'
    """
    if not isinstance(scores, Estimate):
        if len(scores) == 0 or not np.isfinite(scores).all():
            return ""
        scores = estimate(scores)
    value, low, high = scores
    return f"{value:{form}} ({low:{form}} to {high:{form}})"
