"""Regular expressions in Python's dialect, as a tree of few kinds of nodes.

Python's own parser reads them, so that `re.fullmatch` is the judge of what matches. What no finite
automaton can know is refused: references back, looks around, boundaries of words.
"""

import dataclasses
import importlib
import re
from typing import Any

from sake_jax.automata.characters import Ranges, complement, in_any_case, matched_by, union
from sake_jax.checks import require

parser: Any = importlib.import_module("re._parser")  # where `re` has it since Python 3.11

REMEDY = "leave it out: a finite automaton reads each character once, from left to right"
CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
BEGINNINGS = ("AT_BEGINNING", "AT_BEGINNING_STRING")
ENDS = ("AT_END", "AT_END_STRING")


@dataclasses.dataclass(frozen=True)
class Characters:
    """One character of a set."""

    ranges: Ranges


@dataclasses.dataclass(frozen=True)
class Sequence:
    """One after the other."""

    parts: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of these."""

    parts: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Repeat:
    """The part, from so many times to so many times; None: any number."""

    part: Any
    least: int
    most: int | None


def parse_expression(expression: str) -> Any:
    """The tree of an expression that a whole text must match.

    >>> parse_expression("a[b-d]").parts[1]
    Characters(ranges=((98, 100),))
    """
    try:
        parsed = parser.parse(expression)
    except (re.error, RecursionError, OverflowError) as error:
        rule = "a regular expression must be one that Python's re takes"
        raise ValueError(f"{rule}, got {expression!r} ({error}); mend it.") from error
    flags = parsed.state.flags
    require(not flags & re.LOCALE, "an expression must not depend on the locale", expression, "")
    return _edge_sequence(list(parsed), flags)


def _edge_sequence(items: list, flags: int) -> Sequence:
    """As `_sequence`, where ^ may stand at the beginning and $ at the end: they say nothing."""
    if len(items) == 1 and str(items[0][0]) == "BRANCH":
        choices = tuple(_edge_sequence(list(part), flags) for part in items[0][1][1])
        return Sequence((Choice(choices),))
    while items and str(items[0][0]) == "AT" and str(items[0][1]) in BEGINNINGS:
        items = items[1:]
    while items and str(items[-1][0]) == "AT" and str(items[-1][1]) in ENDS:
        items = items[:-1]
    return _sequence(items, flags)


def _sequence(items: Any, flags: int) -> Sequence:
    return Sequence(tuple(_node(str(kind), value, flags) for kind, value in items))


def _node(kind: str, value: Any, flags: int) -> Any:
    if kind in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
        return Characters(_characters(kind, value, flags))
    if kind == "BRANCH":
        return Choice(tuple(_sequence(part, flags) for part in value[1]))
    if kind == "SUBPATTERN":
        _, added, removed, part = value
        return _sequence(part, (flags | added) & ~removed)
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, part = value
        most = None if most is parser.MAXREPEAT else int(most)
        return Repeat(_sequence(part, flags), int(least), most)
    names = {
        "AT": "^ inside, $ inside, \\b or \\B",
        "ASSERT": "a look ahead or behind, (?=...) or (?<=...)",
        "ASSERT_NOT": "a look ahead or behind, (?!...) or (?<!...)",
        "GROUPREF": "a reference back",
        "GROUPREF_EXISTS": "a condition on a group",
    }
    rule = "an expression must be regular"
    require(False, rule, names.get(kind, kind.lower().replace("_", " ")), REMEDY)


def _characters(kind: str, value: Any, flags: int) -> Ranges:
    """The set of one item; negation comes after case, as in Python."""
    if kind == "ANY":
        return complement(()) if flags & re.DOTALL else complement(((10, 10),))
    items = value if kind == "IN" else [("LITERAL", value)]
    negated = kind == "NOT_LITERAL" or (kind == "IN" and str(items[0][0]) == "NEGATE")
    parts: list[tuple[int, int]] = []
    for name, part in items:
        if str(name) == "LITERAL":
            parts.append((part, part))
        elif str(name) == "RANGE":
            parts.append((part[0], part[1]))
        elif str(name) == "CATEGORY":
            parts.extend(matched_by(CATEGORIES[str(part)], flags & re.ASCII))
    ranges = union(parts)
    if flags & re.IGNORECASE:
        ranges = in_any_case(ranges)
    return complement(ranges) if negated else ranges
