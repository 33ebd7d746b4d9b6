"""What the terminal shows of texts: a list, two columns, or a canvas that fills."""

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

import sake_jax as sj
from sake_jax.cli.compare import Comparison
from sake_jax.cli.printable import plain_text, printable
from sake_jax.metrics import format_interval
from sake_jax.tables import column_widths, fitting_parts

NOISE = "░"
"""What stands for a token that is not written yet."""
MEASURES = {
    "distinct-2": "distinct-2 of all texts",
    "distinct-2 within": "distinct-2 within a text",
    "entropy": "entropy of a text, nats",
    "perplexity": "judge's perplexity",
    "seconds": "seconds",
}
"""What is shown of what is measured, and in which words."""


def print_texts(
    console: Console, prompts: list[str], out: sj.Generation, numbers: dict[str, float]
) -> None:
    """Prompt by prompt, text by text, and a line of numbers."""
    for prompt, texts in zip(prompts, out.texts, strict=True):
        table = Table.grid(padding=(0, 1, 1, 0))
        for at, text in enumerate(texts, 1):
            table.add_row(Text(str(at), "dim"), _with_prompt(prompt, text))
        console.print(table)
    line = ", ".join(f"{MEASURES[name]} {value:.3g}" for name, value in numbers.items())
    console.print(Text(line, "dim"))


class Pair(NamedTuple):
    """Two texts from the same noise, without guidance and with it."""

    number: int
    prompt: str
    plain: str | None
    guided: str | None


def print_comparison(
    console: Console,
    names: Sequence[str],
    pairs: Sequence[Pair],
    count: int,
    compared: Sequence[Comparison],
    seconds: Sequence[float],
) -> None:
    """Typical pairs of `count`, both runs' means with intervals, and what differs clearly."""
    table = Table(*_headers(names), expand=True, show_lines=True)
    for pair in pairs:
        table.add_row(*(_with_prompt(pair.prompt, text) for text in (pair.plain, pair.guided)))
    console.print(table)
    shown = " and ".join(str(pair.number) for pair in pairs)
    typical = f"Pairs {shown} of {count}, near the means of distinct-2 within a text."
    console.print(Text(f"{typical} --json shows all.", "dim"))
    below = Table("means, 95 % intervals", *_headers(names))
    for measure in compared:
        values = (format_interval(each, measure.form) for each in measure.each)
        below.add_row(measure.label, *values)
    console.print(below)
    plain, guided = names
    against = f"{printable(guided)} against {printable(plain)}, pair by pair, at equal length:"
    console.print(Text(against))
    for measure in compared:
        clear = measure.verdict in ("more", "less")
        console.print(Text(f"  {measure.sentence}", "bold" if clear else ""))
    took = " and ".join(f"{each:.1f}" for each in seconds)
    console.print(Text(f"{took} seconds, compiling included", "dim"))


def _headers(names: Iterable[str]) -> list[Column]:
    return [Column(plain_text(name)) for name in names]


def _with_prompt(prompt: str, text: str | None) -> Text:
    return Text.assemble((printable(prompt), "bold"), printable(text or ""))


class Screen:
    """Rows that fill, drawn anew after each step: `with Screen(...)`, then `update`."""

    def __init__(self, lm: sj.LanguageModel, title: str):
        self.title = title
        self.before: np.ndarray | None = None
        self.piece = functools.cache(lambda at: printable(lm.tokenizer.decode([at])))
        self.live = Live(auto_refresh=False)

    def __enter__(self) -> "Screen":
        self.live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.live.__exit__(*error)

    def update(self, canvas: sj.Canvas) -> None:
        """Shows a canvas."""
        self.live.update(
            Panel(Group(*self.rows(canvas)), title=plain_text(self.title)), refresh=True
        )

    def rows(self, canvas: sj.Canvas) -> list[Text]:
        """A line for each row: the prompt in bold, noise, and in green what is new."""
        tokens = np.asarray(canvas.tokens)
        before, self.before = self.before, tokens
        if before is None or before.shape != tokens.shape:
            before = tokens
        fresh = tokens != before
        noise, prompt, real = map(np.asarray, (canvas.open, canvas.prompt, canvas.attend))
        lines = []
        for row in range(len(tokens)):
            line = Text()
            for at in np.flatnonzero(real[row]):
                if noise[row, at]:
                    line.append(NOISE, "dim")
                else:
                    style = "bold" if prompt[row, at] else "green" if fresh[row, at] else ""
                    line.append(self.piece(int(tokens[row, at])), style)
            lines.append(line)
        return lines


def print_markdown(text: str) -> None:
    """Prints a report as a terminal shows it best."""
    from rich.markdown import Markdown  # the slowest part of rich, for reports only

    console = Console()
    lines = printable(text).split("\n")
    for in_table, run in itertools.groupby(lines, key=lambda line: line.startswith("|")):
        if not in_table:
            console.print(Markdown("\n".join(run)))
            continue
        for rows in fitting_parts(list(run), console.width):
            console.print(_report_table(rows, console.width))


def _report_table(rows: Sequence[Sequence[str]], width: int) -> Table:
    """A table of a report, whose words are whole."""
    head, *others = rows
    widths = column_widths(rows, width)
    columns = [Column(Text(name), width=each) for name, each in zip(head, widths, strict=True)]
    shown = Table(*columns, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for row in others:
        shown.add_row(*map(Text, row))
    return shown
