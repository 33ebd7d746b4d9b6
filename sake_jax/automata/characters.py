"""Sets of characters as ranges of code points, and as what their UTF-8 bytes may be."""

import functools
import re
from collections.abc import Iterable
from typing import Any

Ranges = tuple[tuple[int, int], ...]
"""Code points from the first to the last of each pair, ascending, with gaps in between."""

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
"""Halves of characters, which no text in UTF-8 has."""
LIMITS = (0x7F, 0x7FF, 0xFFFF, LAST)
"""The last code point that takes one byte, two, three, four."""


def union(parts: Iterable[tuple[int, int]]) -> Ranges:
    """The set of all characters in any of these ranges."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(parts):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """All other characters."""
    edges = [-1, *(edge for pair in ranges for edge in pair), LAST + 1]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return tuple((last + 1, first - 1) for last, first in gaps if last + 1 < first)


@functools.cache
def _all_characters() -> str:
    return "".join(chr(c) for c in range(LAST + 1) if not SURROGATES[0] <= c <= SURROGATES[1])


@functools.cache
def matched_by(expression: str, flags: int = 0) -> Ranges:
    """The characters that an expression for one character matches, by Python's own verdict.

    >>> matched_by("[a-c]"), matched_by("k", re.IGNORECASE)  # the last is the sign of kelvin
    (((97, 99),), ((75, 75), (107, 107), (8490, 8490)))
    """
    runs = re.finditer(f"(?:{expression})+", _all_characters(), flags)
    return union((ord(run[0][0]), ord(run[0][-1])) for run in runs)


def in_any_case(ranges: Ranges) -> Ranges:
    """The set with the other cases of its letters, as re.IGNORECASE has it."""
    inside = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
    return matched_by(f"[{inside}]", re.IGNORECASE) if ranges else ranges


Node = tuple[tuple[int, int, Any], ...]
"""How a character goes on: (first byte, last byte, what follows or None), without overlap."""


@functools.cache
def utf8(ranges: Ranges) -> Node:
    """The bytes of a set's characters, as a tree whose equal branches are one object.

    >>> utf8(((0x61, 0x7A), (0xE9, 0xE9)))  # a to z, é
    ((97, 122, None), (195, 195, ((169, 169, None),)))
    """
    sequences = [sequence for pair in ranges for sequence in _sequences(*pair)]
    return _tree(tuple(sorted(sequences)))


@functools.cache
def _tree(sequences: tuple[tuple[tuple[int, int], ...], ...]) -> Node:
    after: dict[tuple[int, int], list] = {}
    for sequence in sequences:
        after.setdefault(sequence[0], []).append(sequence[1:])
    return tuple(
        (first, last, _tree(tuple(rest)) if rest[0] else None)
        for (first, last), rest in after.items()
    )


def _sequences(first: int, last: int) -> list[tuple[tuple[int, int], ...]]:
    """A range of code points as ranges of bytes, one after the other."""
    low, high = SURROGATES
    if first <= high and last >= low:
        before = _sequences(first, low - 1) if first < low else []
        return before + (_sequences(high + 1, last) if last > high else [])
    for limit in LIMITS:
        if first <= limit < last:
            return _sequences(first, limit) + _sequences(limit + 1, last)
    if last <= LIMITS[0]:
        return [((first, last),)]
    for shift in (6, 12, 18):
        # A range is one sequence where all lower bytes are free, or the upper ones are equal.
        below = (1 << shift) - 1
        if first & ~below != last & ~below:
            if first & below:
                return _sequences(first, first | below) + _sequences((first | below) + 1, last)
            if last & below != below:
                return _sequences(first, (last & ~below) - 1) + _sequences(last & ~below, last)
    return [tuple(zip(chr(first).encode(), chr(last).encode(), strict=True))]
