"""How much texts repeat themselves and each other."""

import collections
import re
from collections.abc import Hashable, Sequence

import numpy as np

from sake_jax.checks import require

Units = Sequence[Hashable]
"""A text as words, or as token ids."""

WORD = re.compile(r"\w+(?:['’]\w+)?|[^\w\s]")


def words(text: str) -> list[str]:
    """Words and punctuation marks, in lower case.

    >>> words("The cat sat.")
    ['the', 'cat', 'sat', '.']
    """
    return WORD.findall(text.lower())


def grams(units: Units, n: int) -> list[tuple[Hashable, ...]]:
    """All runs of `n` units."""
    _require_units(units)
    return list(zip(*(units[at:] for at in range(n)), strict=False))


def distinct(texts: Sequence[Units], n: int = 2) -> float:
    """distinct-n (Li et al. 2016): different n-grams of all texts, as a share of all n-grams.

    Of one text, it tells how little that repeats itself. It falls with the number of texts:
    compare sets of the same size. Without any n-gram it is 0.

    >>> distinct([["a", "b", "a", "b"]], n=2)  # ab, ba, ab
    0.6666666666666666
    """
    each = [gram for text in texts for gram in grams(text, n)]
    return len(set(each)) / max(len(each), 1)


def distinct_within(texts: Sequence[Units], n: int = 2) -> float:
    """The mean of each text's own distinct-n; texts shorter than `n` are left out.

    >>> distinct_within([["a", "b"], ["a", "b"]])  # neither repeats itself
    1.0
    """
    each = [distinct([text], n) for text in texts if len(text) >= n]
    return float(np.mean(each)) if each else 0.0


def sample_entropy(texts: Sequence[Units]) -> float:
    """The mean entropy of each text's own units, in nats: low where few are used again and again.

    MDLM's line of work calls it sample entropy. It tells collapse that perplexity rewards.

    >>> round(sample_entropy([["a", "b", "c", "d"]]), 3)  # log 4
    1.386
    """
    each = [_unit_entropy(text) for text in texts if len(text)]
    return float(np.mean(each)) if each else 0.0


def _unit_entropy(units: Units) -> float:
    _require_units(units)
    share = np.asarray(list(collections.Counter(units).values())) / len(units)
    return float(-np.sum(share * np.log(share)))


def _require_units(units: Units) -> None:
    rule = "a text must be cut into words or tokens"
    require(not isinstance(units, str), rule, units, "cut it with words")
