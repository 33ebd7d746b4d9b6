"""How many of a prompt's samples are different, as NoveltyBench counts (Zhang et al. 2025)."""

import collections
from collections.abc import Callable, Sequence

import numpy as np

from sake_jax.checks import number, require
from sake_jax.metrics.diversity import words
from sake_jax.metrics.semantic import Encoder

Same = Callable[[str, str], bool]
"""Whether two texts say the same."""
UNIGRAM = 0.458
"""The word overlap from which NoveltyBench calls two texts the same."""


def partition(texts: Sequence[str], same: Same) -> list[int]:
    """The class of each text, counted from 0.

    A text joins the earliest class whose first text is the same as it, or opens a new one. So
    classes depend on the order where `same` is not transitive.

    >>> partition(["a cat", "A cat!", "a dog"], same_words(1.0))
    [0, 0, 1]
    """
    rule = "texts must be a list of texts"
    require(not isinstance(texts, str), rule, texts, "put a single one in a list")
    firsts, classes = [], []
    for text in texts:
        kind = next((at for at, first in enumerate(firsts) if same(first, text)), len(firsts))
        firsts += [text] if kind == len(firsts) else []
        classes.append(kind)
    return classes


def distinct_count(texts: Sequence[str], same: Same) -> int:
    """How many classes the texts fall into: 1 where all are the same, 0 without texts.

    >>> distinct_count(["a cat", "A cat!", "a dog"], same_words(1.0))
    2
    """
    return len(set(partition(texts, same)))


def same_words(share: float = UNIGRAM) -> Same:
    """Texts whose words overlap by this share or more, without regard to order, case and marks.

    The share is the F-measure of common words, repetitions included, as in ROUGE-1. 1 asks for
    the very same words.

    >>> same_words(0.5)("the big cat", "the small cat")
    True
    """
    share = number("share", share, at_least=0, at_most=1)

    def same(one: str, other: str) -> bool:
        mine, theirs = _bag(one), _bag(other)
        total = mine.total() + theirs.total()
        return mine == theirs if not total else 2 * (mine & theirs).total() >= share * total

    return same


def same_meaning(encoder: Encoder, cosine: float = 0.8) -> Same:
    """Texts whose sentence embeddings have this cosine or more; each text is embedded once.

    >>> class Lengths(Encoder):
    ...     def embed(self, texts):  # a direction for short texts, another for long ones
    ...         return np.asarray([[len(text) < 4, len(text) >= 4] for text in texts], float)
    >>> same = same_meaning(Lengths(params={}, heads=0, eps=0.0, tokenizer=None))
    >>> same("a", "bee"), same("a", "beetle")
    (True, False)
    """
    cosine, seen = number("cosine", cosine, at_least=-1, at_most=1), {}

    def vector(text: str) -> np.ndarray:
        if text not in seen:
            seen[text] = encoder.embed([text])[0].astype(np.float64)
        return seen[text]

    return lambda one, other: bool(vector(one) @ vector(other) >= cosine)


def _bag(text: str) -> collections.Counter[str]:
    return collections.Counter(word for word in words(text) if any(map(str.isalnum, word)))
