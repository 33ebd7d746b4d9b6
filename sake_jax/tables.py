"""Tables for reports."""

from collections.abc import Sequence


def table(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as a Markdown table, the first of them as its head.

    >>> print(table([["", "x"], ["a", "1"]]))
    | | x |
    |---|---|
    | a | 1 |
    """
    first, *others = (_line(line) for line in lines)
    return "\n".join([first, "|" + "---|" * len(lines[0]), *others])


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"
