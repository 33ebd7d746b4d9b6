"""The command that runs the paper's experiments."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown

from sake_jax.checks import one_of
from sake_jax.cli.checkpoints import plain_errors
from sake_jax.cli.generate import remember_programs

app = typer.Typer()


def experiments() -> dict[str, Callable[..., Any]]:
    """All of them, by name."""
    from sake_jax.experiments.gaussian import gaussian

    return {"gaussian": gaussian}


@app.command(epilog="Example: sake-jax experiment gaussian --quick")
def experiment(
    name: Annotated[str, typer.Argument(help="Such as 'gaussian'.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder; experiments/NAME by default. It is resumed.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="In small, to see it work.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each setting.")] = 5,
) -> None:
    """Run one of the paper's experiments: results.jsonl, table.md and figures.

    A stopped run goes on with the same command.
    """
    with plain_errors():
        chosen = experiments()[one_of("NAME", name, experiments())]
        remember_programs()
        folder = out or Path("experiments") / (f"{name}-quick" if quick else name)
        study = chosen(folder, quick=quick, seeds=seeds)
        console = Console()
        console.print(Markdown((study.folder / "table.md").read_text()))
        made = ", ".join(sorted(path.name for path in study.folder.glob("*.png")))
        console.print(f"in {study.folder}: results.jsonl, table.md, {made}", soft_wrap=True)
