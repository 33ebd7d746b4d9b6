"""The file of what was measured and planned, and pages that show a part of it."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

from sake_jax.checks import require
from sake_jax.files import lock, write_atomically
from sake_jax.planning.bench.report import (
    PUBLISHED,
    QUIET,
    describe_measurement,
    format_added,
    other_cores,
)
from sake_jax.planning.forms import BASE, DEFAULT, FREE, PAPER
from sake_jax.tables import table

PARTS = ("measured", "planned")


def read_results(path: Path) -> dict[str, Any]:
    """The parts of a file, none if it is not there."""
    if not path.exists():
        return {}
    try:
        results = json.loads(path.read_text())
    except ValueError:
        results = None
    rule = f"{path.name} must hold an object with {' and '.join(PARTS)}"
    right = isinstance(results, dict) and set(results) <= set(PARTS)
    require(right, rule, "something else", "name a file that sake-jax bench wrote, or a new one")
    return dict(results or {})


def write_results(path: Path, parts: dict[str, Any]) -> dict[str, Any]:
    """Puts parts in place of the file's own; the others stay as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path.parent, wait=True):  # another bench must not write between the two
        results = read_results(path) | parts
        write_atomically(path, json.dumps(results, indent=1) + "\n")
    return results


def short_table(results: dict[str, Any]) -> str:
    """What the default, the paper's algorithm and classifier-free guidance add to a step, as
    planned for one chip: README's table."""
    _, cells = _sources(results)[0]
    names = {DEFAULT: "SAKE, its default", PAPER: "the paper's Algorithm 1", FREE: FREE}
    lines = [["", *(f"prompt of {cell['at']:,}" for cell in cells)]]
    lines += [
        [title, *(format_added(cell["forms"], name) for cell in cells)]
        for name, title in names.items()
    ]
    return table(lines)


def summary_table(results: dict[str, Any]) -> str:
    """The shortest and the longest prompt of all sources beside each other.

    Times that were taken while others used the machine are left out.
    """
    sources = _sources(results)
    names = [name for name in sources[0][1][0]["forms"] if name != BASE]
    lines = [["added to a step without guidance"]]
    lines[0] += [f"{title}, prompt {cell['at']:,}" for title, cells in sources for cell in cells]
    cells = [cell["forms"] for _, two in sources for cell in two]
    lines += [[name, *(format_added(forms, name) for forms in cells)] for name in names]
    return table(lines) + "\n\n" + _notes(results)


def _sources(results: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """Titles, and the cells of the first and the last prompt."""
    ends = lambda cells: [cells[0], cells[-1]]  # noqa: E731
    chips = results["planned"]["chips"]
    one = next((each for each in chips if each["devices"] == 1), chips[0])
    planned = (f"planned, {one['chips']}", ends(one["prompt"]))
    measured = ("measured", ends(results["measured"]["tables"]["prompt"]))
    return [planned, measured] if _quiet(results) else [planned]


def _quiet(results: dict[str, Any]) -> bool:
    return other_cores(results["measured"]) <= QUIET


def _notes(results: dict[str, Any]) -> str:
    ratios = {
        name: [100 * (base / own - 1) for base, own in zip(PUBLISHED[BASE], speeds, strict=True)]
        for name, speeds in PUBLISHED.items()
        if name != BASE
    }
    said = "; ".join(f"{name} {min(r):+.0f} to {max(r):+.0f} %" for name, r in ratios.items())
    model, setting = results["planned"]["model"], results["planned"]["setting"]
    plan = f"Planned: {model['name']}, batch {setting['batch']}."
    busy = "Measured: only on a busy machine so far, so times are not shown."
    measured = f"Measured: {describe_measurement(results['measured'])}" if _quiet(results) else busy
    return textwrap.fill(f"{plan} {measured} In the paper, on one GPU: {said}.", 115)


def replace_between_markers(page: str, name: str, text: str) -> str:
    """A page with other text between <!-- name --> and <!-- /name -->.

    >>> replace_between_markers("a <!-- x -->old<!-- /x --> b", "x", "new")
    'a <!-- x -->\\nnew\\n<!-- /x --> b'
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    rule = f"a page must have {begin} and after it {end}, once"
    fits = page.count(begin) == page.count(end) == 1 and page.index(begin) < page.index(end)
    require(fits, rule, "another page", "put them where the table belongs")
    between = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.S)
    return between.sub(lambda _: f"{begin}\n{text}\n{end}", page)
