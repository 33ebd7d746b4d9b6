"""Self-BLEU: how much texts repeat each other's phrases."""

import collections
import math
from collections.abc import Hashable, Sequence

import numpy as np

from sake_jax.checks import require, whole
from sake_jax.metrics.diversity import Units, grams

Gram = tuple[Hashable, ...]


def self_bleu(texts: Sequence[Units], n: int = 4) -> float:
    """The mean BLEU of each text with all others as its references (Zhu et al. 2018), 0 to 1.

    1 where all texts are the same; less is more diverse. It grows with the number of texts:
    compare sets of the same size. Sentence BLEU with exponential smoothing and effective order,
    which is sacrebleu's default for sentences, of texts that are cut already.

    >>> same = ["the", "cat", "sat", "on", "it"]
    >>> self_bleu([same, same])
    1.0

    Args:
      texts: at least two, cut into `words` or token ids.
      n: the longest phrases that count.
    """
    n = whole("n", n)
    require(len(texts) >= 2, "self-BLEU needs texts to compare", len(texts), "give two or more")
    counts = [_counts(text, n) for text in texts]
    ceilings, lengths = _ceilings(counts), [len(text) for text in texts]
    scores = []
    for at, own in enumerate(counts):
        matched, total = [0] * n, [max(lengths[at] - order, 0) for order in range(n)]
        for gram, count in own.items():
            most, owner, second = ceilings[gram]
            matched[len(gram) - 1] += min(count, second if owner == at else most)
        others = lengths[:at] + lengths[at + 1 :]
        scores.append(_brevity(lengths[at], others) * _precision(matched, total))
    return float(np.mean(scores))


def _counts(text: Units, n: int) -> collections.Counter[Gram]:
    """How often a text has each run of 1 to n units."""
    return collections.Counter(gram for size in range(1, n + 1) for gram in grams(text, size))


def _ceilings(counts: Sequence[collections.Counter[Gram]]) -> dict[Gram, tuple[int, int, int]]:
    """The most often a text has each gram, which text, and the most of all others.

    So that the references of every text, all but itself, need no counting of their own.
    """
    ceilings: dict[Gram, tuple[int, int, int]] = {}
    for at, own in enumerate(counts):
        for gram, count in own.items():
            most, owner, second = ceilings.get(gram, (0, -1, 0))
            ahead = count > most
            ceilings[gram] = (count, at, most) if ahead else (most, owner, max(second, count))
    return ceilings


def _precision(matched: Sequence[int], total: Sequence[int]) -> float:
    """The geometric mean over orders that the text is long enough for.

    An order without a match counts as half a match, the next such as a quarter, and so on.
    """
    if not any(matched):
        return 0.0
    logs, halvings = [], 0
    for matches, grams_of_order in zip(matched, total, strict=True):
        if grams_of_order:
            halvings += not matches
            logs.append(math.log((matches or 0.5**halvings) / grams_of_order))
    return math.exp(sum(logs) / len(logs))


def _brevity(length: int, others: Sequence[int]) -> float:
    """The penalty for texts shorter than the nearest length of the others, the shorter of two."""
    nearest = min(others, key=lambda other: (abs(other - length), other))
    return min(1.0, math.exp(1 - nearest / length)) if length else 0.0
