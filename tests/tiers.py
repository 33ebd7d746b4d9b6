"""Which of many like cases run always, and which only with `pytest -m slow`."""

from collections.abc import Iterable

import pytest


def few_quick(cases: Iterable, quick: int) -> list:
    """The first `quick` of the cases as they are; the others are slow: a compilation each."""
    return [
        case if at < quick else pytest.param(case, marks=pytest.mark.slow)
        for at, case in enumerate(cases)
    ]
