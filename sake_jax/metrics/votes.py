"""Self-consistency: the answer that most samples agree on."""

import collections
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sake_jax.checks import require, whole
from sake_jax.metrics.estimate import Estimate, estimate

INVALID = "[invalid]"
"""The vote of a sample in which no answer was found."""


class Consistency(NamedTuple):
    """How often the vote of n samples is right.

    >>> answers = [["7", "7", "9", "9", "9"]]
    >>> votes = self_consistency(answers, lambda problem, answer: answer == "7", n=3)
    >>> votes.first.value, votes.subsets.value  # 7, 7, 9 says 7, but 3 of 10 subsets only
    (1.0, 0.3)
    """

    first: Estimate
    """Of each problem's first n samples: what one run of n samples would have said."""
    subsets: Estimate
    """Over subsets of n of all samples: the same expectation with less noise."""


def majority(answers: Sequence[str], invalid: str = INVALID) -> str:
    """The most frequent answer; of several, the one that appeared first.

    Samples without an answer do not vote. Where none has one, neither has the vote.

    >>> majority(["7", "9", "9", "7", "[invalid]", "[invalid]", "[invalid]"])
    '7'
    """
    _answered(answers)
    counts = collections.Counter(answer for answer in answers if answer != invalid)
    return max(counts, key=counts.__getitem__, default=invalid)  # keys are in order of appearance


def self_consistency(
    answers: Sequence[Sequence[str]],
    correct: Callable[[int, str], bool],
    n: int,
    *,
    invalid: str = INVALID,
    subsets: int = 1000,
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> Consistency:
    """The accuracy of votes over n samples, with bootstrap intervals over problems.

    >>> answers = [["7", "7", "9"], ["1", "2", "2"]]
    >>> votes = self_consistency(answers, lambda problem, answer: answer in ("7", "1"), n=3)
    >>> votes.first.value  # the first problem's vote is right
    0.5

    Args:
      answers: of every problem's samples, in the order they were drawn.
      correct: whether an answer to the problem of this number is right.
      n: how many samples vote.
      invalid: what stands for no answer.
      subsets: how many random subsets of n samples are averaged; all of them if they are fewer.
        In each, samples keep their order, so that ties fall as in a run of n samples.
      level: of the intervals.
      draws: of the bootstrap.
      seed: of subsets and bootstrap.
    """
    n, subsets = whole("n", n), whole("subsets", subsets)
    rule, remedy = "every problem must have n samples", "draw more, or lower n"
    fewest = min((len(row) for row in answers), default=0)
    require(n <= fewest, rule, f"{fewest} where n = {n}", remedy)
    chosen = {size: _subsets(size, n, subsets, seed) for size in {len(row) for row in answers}}
    first, mean = [], []
    for at, row in enumerate(answers):
        kinds = list(dict.fromkeys(row))
        right = np.asarray([bool(correct(at, kind)) for kind in kinds])
        codes = np.asarray([kinds.index(answer) for answer in row])
        votes = _votes(codes[chosen[len(row)]], kinds.index(invalid) if invalid in kinds else -1)
        first.append(float(right[kinds.index(majority(row[:n], invalid))]))
        mean.append(float(right[votes].mean()))
    intervals = {"level": level, "draws": draws, "seed": seed}
    return Consistency(estimate(first, **intervals), estimate(mean, **intervals))


def _subsets(size: int, n: int, most: int, seed: int) -> np.ndarray:
    """(subsets, n) positions, increasing: all, or `most` random ones."""
    if math.comb(size, n) <= most:
        return np.asarray(list(itertools.combinations(range(size), n)))
    random = np.random.default_rng(seed)
    order = random.permuted(np.tile(np.arange(size), (most, 1)), axis=1)
    return np.sort(order[:, :n], axis=1)


def _votes(codes: np.ndarray, invalid: int) -> np.ndarray:
    """(subsets,) the majority of each row of coded answers, by the rule of `majority`."""
    counts = (codes[:, :, None] == codes[:, None, :]).sum(axis=2)
    counts = np.where(codes == invalid, 0, counts)
    return np.take_along_axis(codes, counts.argmax(axis=1)[:, None], axis=1)[:, 0]


def _answered(answers: Sequence[str]) -> None:
    rule = "answers must be a list of texts, at least one"
    require(not isinstance(answers, str) and len(answers), rule, answers, "give every sample's")
