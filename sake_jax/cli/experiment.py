"""The command that runs the paper's experiments."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from sake_jax.checks import one_of, require
from sake_jax.cli.command import command
from sake_jax.cli.options import remember_programs
from sake_jax.cli.printable import print_line
from sake_jax.cli.screen import print_markdown
from sake_jax.experiments import EXPERIMENTS, load_experiment

app = typer.Typer()

EXAMPLES = """Examples:

sake-jax experiment solve --tasks countdown-3 --model runs

sake-jax experiment gaussian --quick

sake-jax experiment story --judge smollm2 --seeds 10

sake-jax experiment sensitivity --model path/to/mdlm --length 256 --out runs/sensitivity

sake-jax experiment story --model path/to/llada --judge path/to/qwen3 --prompts mine.txt
"""


def experiments() -> dict[str, Callable[..., Any]]:
    """All of them, by name."""
    return {name: load_experiment(name) for name in EXPERIMENTS}


def _has(made: Callable[..., Any], option: str) -> bool:
    return option in inspect.signature(made).parameters


@command(app, epilog=EXAMPLES)
def experiment(
    name: Annotated[
        str,
        typer.Argument(help=f"One of {', '.join(EXPERIMENTS)}."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The folder; experiments/NAME by default. It is resumed.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="In small, to see it work.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each setting.")] = 5,
    model: Annotated[
        str | None,
        typer.Option(
            help="Another model than the built-in one; for solve, the folder of its models."
        ),
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="Whose perplexity is taken: a causal model, or 'smollm2'.")
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(help="A file with a prompt on each line, for story, brainstorm.")
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Puzzles with commas, for solve: 'countdown-3,products'.")
    ] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Texts of each prompt.")] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Tokens of a text.")] = None,
) -> None:
    """Run one of the paper's experiments: results.jsonl, table.md and figures.

    A stopped run goes on with the same command.
    """
    known = experiments()
    chosen = known[one_of("NAME", name, known)]
    own = {"model": model, "judge": judge, "prompts": prompts}
    own |= {"tasks": tasks, "samples": samples, "length": length}
    given = {option: value for option, value in own.items() if value is not None}
    for option in given:
        having = [each for each, made in known.items() if _has(made, option)]
        rule = f"--{option} is for {', '.join(having)}"
        require(name in having, rule, name, "leave it out")
    remember_programs()
    folder = out or Path("experiments") / (f"{name}-quick" if quick else name)
    study = chosen(folder, quick=quick, seeds=seeds, **given)
    print_markdown((study.folder / "table.md").read_text())
    made = ", ".join(sorted(path.name for path in study.folder.glob("*.png")))
    print_line(f"in {study.folder}: results.jsonl, table.md, {made}")
