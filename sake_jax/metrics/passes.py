"""pass@k: how often at least one of k samples is right, with intervals over problems."""

import functools
import math
from collections.abc import Sequence

import numpy as np

from sake_jax.checks import number, require, whole
from sake_jax.metrics.estimate import Estimate, estimate

Table = Sequence[Sequence[bool]] | np.ndarray
"""Problems by samples: which are right. Problems may have different numbers of samples."""


def pass_at_k(
    n: int | Sequence[int] | np.ndarray, c: int | Sequence[int] | np.ndarray, k: int
) -> np.ndarray:
    """The chance that k of a problem's n samples, c of them right, hold a right one.

    1 - C(n - c, k) / C(n, k) (Chen et al. 2021), in whole numbers up to the last division. Over
    problems, its mean is an unbiased estimate of pass@k.

    >>> pass_at_k(4, [0, 1, 4], 2).tolist()
    [0.0, 0.5, 1.0]
    """
    k = whole("k", k)
    drawn, right = np.broadcast_arrays(np.asarray(n), np.asarray(c))
    pairs = list(zip(drawn.ravel().tolist(), right.ravel().tolist(), strict=True))
    return np.asarray([_chance(*pair, k) for pair in pairs], np.float64).reshape(drawn.shape)


def pass_rate(
    correct: Table, k: int, *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> Estimate:
    """Unbiased pass@k over problems, with its bootstrap interval.

    >>> pass_rate([[True, False], [False, False]], 1).value
    0.25
    """
    rows = _rows(correct)
    scores = pass_at_k([len(row) for row in rows], [sum(row) for row in rows], k)
    return estimate(scores, level=level, draws=draws, seed=seed)


def pass_at_evaluations(
    correct: Table,
    evaluations: float | Sequence[Sequence[float]] | np.ndarray,
    budget: float,
    *,
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """pass@NFE: the share of problems solved when each may cost `budget` network evaluations.

    A problem's samples cost e evaluations in the mean. Its k is the largest whole number with
    k e <= budget, and its score the unbiased pass@k; 0 where not even one sample is affordable.
    Beyond the samples that were drawn k stays at their number, so that the value is then a lower
    bound: compare methods at budgets that all of them can spend.

    >>> pass_at_evaluations([[True, False]], evaluations=64, budget=128).value  # two samples
    1.0

    Args:
      correct: problems by samples.
      evaluations: of every sample, or one number for all.
      budget: network evaluations for each problem.
    """
    rows, budget = _rows(correct), number("budget", budget, at_least=0)
    scores = []
    for at, row in enumerate(rows):
        # Not budget // mean: sums are whole numbers, means are rounded.
        affordable = budget * len(row) // _cost(row, evaluations, at)
        k = min(int(affordable), len(row))
        scores.append(_chance(len(row), sum(row), k) if k else 0.0)
    return estimate(scores, level=level, draws=draws, seed=seed)


@functools.cache  # problems are many, pairs of n and c few
def _chance(n: int, c: int, k: int) -> float:
    rule, remedy = "k must be at most the number of samples", "draw more, or lower k"
    require(k <= n, rule, f"k = {k} of {n}", remedy)
    require(0 <= c <= n, "right samples must be 0 to all of them", f"{c} of {n}", "count again")
    every = math.comb(n, k)
    return (every - math.comb(n - c, k)) / every


def _cost(
    row: list[bool], evaluations: float | Sequence[Sequence[float]] | np.ndarray, at: int
) -> float:
    """The evaluations of all samples of a problem."""
    if isinstance(evaluations, int | float | np.number):
        return number("evaluations", evaluations, above=0) * len(row)
    rule = "evaluations must have the shape of correct"
    right = at < len(evaluations) and len(evaluations[at]) == len(row)
    require(right, rule, f"another at problem {at}", "give one number for each sample")
    return float(np.sum(number("evaluations", np.asarray(evaluations[at]), above=0)))


def _rows(correct: Table) -> list[list[bool]]:
    rows = [[bool(right) for right in row] for row in correct]
    rule = "every problem must have samples"
    require(rows and all(rows), rule, [len(row) for row in rows], "leave out those without")
    return rows
