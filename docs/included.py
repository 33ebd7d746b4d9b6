"""Directives for what is written elsewhere: measured results, and the help of commands."""

import re
from pathlib import Path
from typing import Any, ClassVar

import typer.main
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from sake_jax.cli import app

LONGEST = 12
"""Rows of a table that is shown at once."""
RESULTS = Path(__file__).parents[1] / "benchmarks/results"


class Results(SphinxDirective):
    """`results NAME`: the figures and the table that an experiment left in its folder."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        folder = RESULTS / self.arguments[0]
        self.env.note_dependency(str(folder / "table.md"))
        return self.parse_text_to_nodes("\n".join(figures_and_table(folder)))


def figures_and_table(folder: Path) -> list[str]:
    """A result as Markdown, without its title."""
    table = folder / "table.md"
    if not table.is_file():
        return [f"*Not measured yet: `sake-jax experiment {folder.name}` does it.*"]
    figures = [line for path in sorted(folder.glob("*.png")) for line in figure(path)]
    text = re.sub(r"^# .*\n+", "", table.read_text())
    text = re.sub(r"^##+ (.*)$", r"**\1**", text, flags=re.M)
    text = re.sub(r"(?:^\|.*\n)+", folded, text, flags=re.M)
    # "Against ...: above: ..." is many numbers in one paragraph: an item for each comparison.
    text = re.sub(r"(?<=\.) (?=Against “|Best in the means)", "\n- ", text)
    text = re.sub(r"^(\*\*.*)\n- ", r"\1\n\n- ", text, flags=re.M)
    return [*figures, *text.splitlines()]


def figure(path: Path) -> list[str]:
    """A picture that a click shows in full; square ones need not fill the page."""
    wide, high = (int.from_bytes(path.read_bytes()[at : at + 4]) for at in (16, 20))
    place = f"/../benchmarks/results/{path.parent.name}/{path.name}"
    alt = f"{path.parent.name}: {path.stem.replace('-', ', ')}"
    width = "100%" if wide > 1.6 * high else "66%"
    return [f"```{{image}} {place}", f":alt: {alt}", f":width: {width}", "```", ""]


def folded(table: re.Match[str]) -> str:
    """A long table opens with a click."""
    rows = table[0].count("\n") - 2
    if rows <= LONGEST:
        return table[0]
    summary = f"<details>\n<summary>The table, {rows} rows</summary>"
    return f"{summary}\n\n{table[0]}\n</details>\n"


class Excerpt(SphinxDirective):
    """`excerpt FILE`: rows of a table in a section of it, chosen by how they begin."""

    required_arguments = 1
    option_spec: ClassVar = {"section": directives.unchanged_required}
    has_content = True

    def run(self) -> list[nodes.Node]:
        path = RESULTS / self.arguments[0]
        self.env.note_dependency(str(path))
        section = path.read_text().split(f"# {self.options['section']}\n", 1)[-1]
        table = [line for line in section.split("\n#", 1)[0].splitlines() if line[:1] == "|"]
        lines = table[:2]
        for start in filter(None, self.content):
            rows = [row for row in table[2:] if row.startswith(f"| {start}")]
            if not rows:
                raise self.error(f"{path.name} must have a row {start!r} in that section")
            lines += rows[:1]
        return self.parse_text_to_nodes("\n".join(lines))


class Commands(SphinxDirective):
    """`commands`: a section for each command."""

    def run(self) -> list[nodes.Node]:
        group: Any = typer.main.get_command(app)
        lines = [line for name in group.commands for line in described(name, group.commands[name])]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def described(name: str, command: Any) -> list[str]:
    """What `--help` says, in Markdown."""
    lines = [f"## {name}", "", command.help, "", "| | |", "|---|---|"]
    for part in command.params:
        words = part.opts + part.secondary_opts
        shown = ", ".join(words) if part.param_type_name == "option" else part.name.upper()
        said = (part.help or "").replace("|", "/")
        lines.append(f"| `{shown}` | {said}{default(part)} |")
    said = re.findall(r"sake-jax .*", command.epilog or "")
    return [*lines, "", *(["```bash", *said, "```"] if said else []), ""]


def default(part: Any) -> str:
    """What an option is without being said, where that is a value."""
    plain = part.default is None or isinstance(part.default, bool) or callable(part.default)
    return "" if plain or part.required else f" (`{part.default}`)"
