"""A Kneser-Ney n-gram model of token ids: the baseline that a small neural model should beat.

Interpolated, with modified discounts (Chen and Goodman 1998). Contexts end where a document
begins: its end token stands before it, as the begin marker of toolkits does, and n-grams that
begin with that marker keep their own counts, since nothing can stand to their left.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

FALLBACK = (0.0, 0.5, 1.0, 1.5)
"""Discounts of counts 0, 1, 2, 3 and more where a text is too small, or its tokens too common,
to estimate them."""


@dataclasses.dataclass(frozen=True)
class Level:
    """All n-grams of one order, as numbers: one digit for each token, the last one lowest."""

    grams: np.ndarray
    """Sorted, so those of one context stand together."""
    share: np.ndarray
    """Of each: its discounted part of its context's count."""
    contexts: np.ndarray
    """Sorted; an n-gram without its last token."""
    first: np.ndarray
    """Of each context: where its n-grams begin, and at last where all of them end."""
    left: np.ndarray
    """Of each context: what the discounts left for the next shorter one."""


@dataclasses.dataclass(frozen=True)
class KneserNey:
    """What `fit` found."""

    vocabulary: int
    end_id: int
    levels: list[Level]
    """Of order 1, 2, ..."""

    def log_p(self, stream: np.ndarray) -> np.ndarray:
        """(N,) log p of each token in nats, given those before it in its document.

        Contexts that reach over an end were never counted, so nothing is found for them.
        """
        p, bits = np.full(len(stream), 1 / self.vocabulary), _bits(self.vocabulary)
        keys = _grams(stream, self.end_id, len(self.levels), bits)
        for level, grams in zip(self.levels, keys, strict=True):
            at, seen = _find(level.grams, grams)
            share = np.where(seen, level.share[at], 0)
            at, seen = _find(level.contexts, grams >> bits)
            p = share + np.where(seen, level.left[at], 1) * p
        return np.log(p)

    def distribution(self, context: Sequence[int]) -> np.ndarray:
        """(V,) the chance of every token after a context; begin it with the end token for a
        document's own beginning."""
        p, bits = np.full(self.vocabulary, 1 / self.vocabulary), _bits(self.vocabulary)
        key = 0
        for n, level in enumerate(self.levels[: len(context) + 1]):  # n tokens of context
            key += int(context[-n]) << (n - 1) * bits if n else 0
            at, seen = _find(level.contexts, np.asarray(key))
            if not seen:  # nor is any longer one, and none that reaches over an end
                break
            some = slice(level.first[at], level.first[at + 1])
            p *= level.left[at]
            p[level.grams[some] & ((1 << bits) - 1)] += level.share[some]
        return p

    def sample(self, context: Sequence[int], length: int, random: np.random.Generator) -> list[int]:
        """A continuation of at most `length` tokens, up to the end token, which is left out."""
        found: list[int] = []
        while len(found) < length:
            p = self.distribution([*context, *found])
            token = int(random.choice(self.vocabulary, p=p))
            if token == self.end_id:
                break
            found.append(token)
        return found


def fit(stream: np.ndarray, vocabulary: int, end_id: int, order: int = 5) -> KneserNey:
    """Counts the n-grams of a stream of documents, each with an end token after it.

    The highest order counts how often an n-gram occurs, lower ones how many different tokens
    stand before it: "francisco" is frequent, but only after "san". Order 1 alone is the unigram.
    """
    bits = _bits(vocabulary)
    if order * bits > 63:
        raise ValueError(f"n-grams must fit into 63 bits, got {order} x {bits}; lower the order.")
    reach, keys = _reach(stream, end_id), _grams(stream, end_id, order, bits)
    own = keys[-1][reach >= order - 1]
    if not own.size:
        raise ValueError(f"a document must have {order - 2} tokens, got none; lower the order.")
    grams, counts = np.unique(own, return_counts=True)
    levels = [_level(grams, counts, bits)]
    for n in range(order - 1, 0, -1):
        after, befores = np.unique(grams & ((1 << n * bits) - 1), return_counts=True)
        begins, times = np.unique(keys[n - 1][reach == n - 1], return_counts=True)
        grams, counts = np.append(after, begins), np.append(befores, times)
        ranks = np.argsort(grams)
        grams, counts = grams[ranks], counts[ranks]
        levels.append(_level(grams, counts, bits))
    return KneserNey(vocabulary, end_id, levels[::-1])


def discounts(counts: np.ndarray) -> np.ndarray:
    """What is taken from counts of 0, 1, 2, and of 3 and more."""
    ones, twos, threes, fours = (int(np.sum(counts == k)) for k in (1, 2, 3, 4))
    if not ones * twos * threes * fours:
        return np.asarray(FALLBACK)
    y = ones / (ones + 2 * twos)
    found = [0, 1 - 2 * y * twos / ones, 2 - 3 * y * threes / twos, 3 - 4 * y * fours / threes]
    right = all(0 < cut <= count for count, cut in enumerate(found[1:], 1))
    return np.asarray(found if right else FALLBACK)


def _level(grams: np.ndarray, counts: np.ndarray, bits: int) -> Level:
    contexts, first, which = np.unique(grams >> bits, return_index=True, return_inverse=True)
    total = np.bincount(which, counts)
    cut = discounts(counts)[np.minimum(counts, 3)]
    share, left = (counts - cut) / total[which], np.bincount(which, cut) / total
    return Level(grams, share, contexts, np.append(first, len(grams)), left)


def _bits(vocabulary: int) -> int:
    return (vocabulary - 1).bit_length()


def _reach(stream: np.ndarray, end_id: int) -> np.ndarray:
    """(N,) how much context each token has: back to its document's begin marker, that included."""
    place = np.arange(len(stream))
    ends = np.where(stream == end_id, place, -1)
    return place - np.maximum.accumulate(np.append(-1, ends[:-1]))


def _grams(stream: np.ndarray, end_id: int, order: int, bits: int) -> list[np.ndarray]:
    """For each order, (N,) the n-gram that ends with each token, over ends too."""
    padded = np.append(np.full(order, end_id), stream).astype(np.int64)
    found = [padded[order:]]
    for n in range(1, order):
        found.append(found[-1] + (padded[order - n : -n] << n * bits))
    return found


def _find(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places in sorted keys, and whether they are there."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return at, keys[at] == wanted
