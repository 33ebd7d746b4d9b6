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


def fitting_parts(lines: Sequence[str], width: int) -> list[list[list[str]]]:
    """A Markdown table as rows of cells; as several tables where one would cut words.

    Each part has the labels, which are the first column and those after it without a head, and as
    many of the others as fit.

    Args:
      lines: of the table.
      width: characters of a terminal's line.

    >>> fitting_parts(["| | apples | pears |", "|---|---|---|", "| Eve | 1 | 2 |"], 17)
    [[['', 'apples'], ['Eve', '1']], [['', 'pears'], ['Eve', '2']]]
    """
    head, _, *others = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    rows = [row[: len(head)] + [""] * (len(head) - len(row)) for row in (head, *others)]
    needs = [longest_word(column) for column in zip(*rows, strict=True)]
    labels = next((at for at, name in enumerate(head) if at and name), len(head))
    parts: list[list[int]] = [[*range(labels)]]
    for at in range(labels, len(head)):
        wider = [*parts[-1], at]
        if len(parts[-1]) > labels and line_width([needs[each] for each in wider]) > width:
            parts.append([*range(labels)])
        parts[-1].append(at)
    return [[[row[at] for at in some] for row in rows] for some in parts]


def column_widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Characters for each column: no word is cut where the line is wide enough for that.

    >>> column_widths([["a", "one two three"], ["b", "four"]], 13)
    [1, 7]
    """
    columns = list(zip(*rows, strict=True))
    widths = [longest_word(column) for column in columns]
    wanted = [max(map(len, column)) for column in columns]
    while line_width(widths) < width and widths != wanted:
        # The one that is furthest from what it wants is the one that is broken most often.
        most = max(range(len(widths)), key=lambda at: wanted[at] / max(widths[at], 1))
        widths[most] += 1
    return widths


def line_width(widths: Sequence[int]) -> int:
    """Of a line with columns of these widths: two spaces after each, and one before all."""
    return sum(widths) + 2 * len(widths) + 1


def longest_word(cells: Sequence[str]) -> int:
    """Characters of the longest word of some cells.

    >>> longest_word(["a few words", ""])
    5
    """
    return max((len(word) for cell in cells for word in cell.split()), default=1)
