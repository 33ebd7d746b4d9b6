"""The folder of an experiment: what was measured so far, and what was made of it."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sake_jax.figures import QUICK
from sake_jax.files import write_atomically
from sake_jax.journal import Journal
from sake_jax.progress import bar

Cell = dict[str, Any]
"""What is measured: names, numbers and a seed, as JSON has them."""
Result = dict[str, Any]
"""What was measured of a cell."""


class Study:
    """Measures cells and writes each to results.jsonl at once: a stopped study goes on.

    >>> import tempfile
    >>> study = Study(tempfile.mkdtemp(), {"experiment": "squares"}, progress=False)
    >>> cells = [{"x": x, "seed": 0} for x in (1, 2, 3)]
    >>> study.measure([cells], lambda group: [{"square": cell["x"] ** 2} for cell in group])
    >>> [row["square"] for row in study.rows(x=3)]
    [9]
    """

    def __init__(self, folder: str | Path, settings: Cell, progress: bool = True):
        """Begins a folder, or goes on with one that has the same settings."""
        self.folder, self.progress = Path(folder), progress
        self.journal = Journal(folder, settings, "results.jsonl")
        lines = self.journal.lines()
        self.results = {_name(line["cell"]): line["cell"] | line["found"] for line in lines}

    def measure(
        self, groups: Sequence[Sequence[Cell]], measured: Callable[[list[Cell]], list[Result]]
    ) -> None:
        """Measures every cell that was not yet; those of a group together, by one call.

        What `measured` finds of a cell must not depend on the others of its group: of a group
        that was cut short only the missing ones are measured again.
        """
        groups = [[cell for cell in group if _name(cell) not in self.results] for group in groups]
        groups = [group for group in groups if group]
        with bar(self.folder.name, sum(map(len, groups)), self.progress) as advance:
            for group in groups:
                begun = time.perf_counter()
                results = measured(group)
                seconds = (time.perf_counter() - begun) / len(group)
                for cell, each in zip(group, results, strict=True):
                    self._append(cell, each | {"seconds": round(seconds, 3)})
                advance(len(group))

    def rows(self, **chosen: Any) -> list[dict[str, Any]]:
        """Cells with their results, of those that have these values."""
        rows = list(self.results.values())
        return [row for row in rows if all(row.get(n) == v for n, v in chosen.items())]

    def write(self, name: str, text: str | bytes) -> Path:
        """A file of the report, or of what it is made from."""
        return write_atomically(self.folder / name, text)

    def _append(self, cell: Cell, result: Result) -> None:
        self.results[_name(cell)] = cell | result
        self.journal.append([{"cell": cell, "found": result}])


def marked(report: str, quick: bool) -> str:
    r"""A report's beginning; that of a quick run says so below its title.

    >>> print(marked("# Squares\n\nOf small numbers.", quick=True))
    # Squares
    <BLANKLINE>
    **This is a quick run: it shows that all works, and claims nothing.**
    <BLANKLINE>
    Of small numbers.
    """
    title, _, rest = report.partition("\n\n")
    return f"{title}\n\n**This is {QUICK}.**\n\n{rest}" if quick else report


def _name(cell: Cell) -> str:
    return json.dumps(cell, sort_keys=True)
