"""Errors at construction that say the rule, what was given, and the remedy."""

import difflib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

PROGRESS = np.linspace(0, 1, 9, dtype=np.float32)
"""Where schedules are checked."""
SHOWN = 240
"""Characters of a value that a message shows: a rule and a remedy must not drown in it."""


def require(condition: Any, rule: str, got: Any, remedy: str) -> None:
    """Raises ``ValueError("<rule>, got <got>; <remedy>.")`` unless the condition holds."""
    if not condition:
        stop = "" if remedy.endswith("?") else "."
        raise ValueError(f"{rule}, got {shorten(got)}; {remedy}{stop}")


def shorten(value: Any) -> str:
    """A value as a message shows it, in its own words; of long ones the beginning.

    >>> shorten("short"), len(shorten("long" * 1000)) < 300
    ("'short'", True)
    """
    try:
        text = repr(value)
    except ValueError:  # a number of more than 4,300 digits
        return f"a {type(value).__name__} of very many digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text):,} characters)"


def one_of(name: str, value: str, choices: Iterable[str]) -> str:
    """Returns `value` if it is one of the choices."""
    choices = tuple(choices)
    listed = ", ".join(map(repr, choices))
    require(value in choices, f"{name} must be one of {listed}", value, "pick one of these")
    return value


def spelling(unknown: Iterable[str], known: Iterable[str]) -> str:
    """A remedy for names that nobody knows: the nearest that somebody does.

    >>> spelling(["widht"], ["width", "layers"])
    "is 'widht' meant to be 'width'?"
    >>> spelling(["colour"], ["width", "layers"])
    "leave 'colour' out"
    """
    unknown, known = list(unknown), list(known)
    for name in unknown:
        if near := difflib.get_close_matches(name, known, n=1):
            return f"is {name!r} meant to be {near[0]!r}?"
    return f"leave {', '.join(map(repr, unknown))} out"


def whole(name: str, value: Any, *, at_least: int = 1, at_most: int | None = None) -> int:
    """Returns `value` as an int if it is a whole number inside the bounds."""
    right = isinstance(value, int | np.integer) and not isinstance(value, bool)
    require(right, f"{name} must be a whole number", value, "round it")
    require(value >= at_least, f"{name} must be at least {at_least}", value, "raise it")
    if at_most is not None:
        require(value <= at_most, f"{name} must be at most {at_most}", value, "lower it")
    return int(value)


def number(
    name: str,
    value: Any,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    schedule: bool = True,
) -> Any:
    """Returns `value` if every concrete number in it is finite and inside the bounds.

    A schedule is checked at several points of the progress, or refused where `schedule` is
    False. Traced values pass: they have no value yet. Plain numbers come back as floats: an int
    and a float would be two programs to the compiler.
    """
    rule = f"{name} must be a number or a schedule"
    plain_function = callable(value) and not hasattr(value, "numbers")
    require(not plain_function, rule, value, "wrap a function in sj.schedule")
    rule_once = f"{name} must be one number for the whole run"
    require(schedule or not callable(value), rule_once, value, "pass a float")
    numbers = [value(progress) for progress in PROGRESS] if callable(value) else value
    for leaf in jax.tree.leaves(numbers):
        if isinstance(leaf, Tracer):
            continue
        try:
            array = np.asarray(leaf, dtype=np.float64)
        except (TypeError, ValueError):
            require(False, rule, leaf, "pass a float")
        require(bool(np.isfinite(array).all()), f"{name} must be finite", leaf, "check its source")
        low, high = array.min(initial=np.inf), array.max(initial=-np.inf)
        if at_least is not None:
            require(low >= at_least, f"{name} must be at least {at_least}", leaf, "raise it")
        if above is not None:
            require(low > above, f"{name} must be above {above}", leaf, "raise it")
        if at_most is not None:
            require(high <= at_most, f"{name} must be at most {at_most}", leaf, "lower it")
    return float(value) if isinstance(value, int | float | np.number) else value
