"""A mean with the interval that the choice of what was measured leaves it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sake_jax.checks import require, whole


class Estimate(NamedTuple):
    """A mean over problems, and its bootstrap interval."""

    value: float
    low: float
    high: float


def estimate(
    scores: Sequence[float] | np.ndarray, *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> Estimate:
    """The mean of one score per problem, with the bootstrap interval over problems.

    It tells how much the choice of problems matters; where all scores are equal it has no width.
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
