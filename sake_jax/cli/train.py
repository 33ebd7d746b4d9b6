"""The command that trains a model from a recipe."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from sake_jax.checks import one_of
from sake_jax.cli.command import command
from sake_jax.cli.printable import plain_text, print_line
from sake_jax.sharding import mesh_sizes

app = typer.Typer()
COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
)


@command(app, epilog="Example: sake-jax train tinystories --data corpus --out runs/tinystories")
def train(
    recipe: Annotated[
        str, typer.Argument(help="A TOML file: data, model, training; or 'tinystories'.")
    ],
    data: Annotated[
        Path | None, typer.Option(help="The folder with the text files; the recipe's by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; runs/NAME by default. It is resumed.")
    ] = None,
    mesh: Annotated[str | None, typer.Option(help="Devices, such as 'data=8'.")] = None,
    dtype: Annotated[
        str, typer.Option(help="Of the published weights: float16, bfloat16 or float32.")
    ] = "float16",
) -> None:
    """Train a small model from a recipe, or go on with a run that was stopped.

    Ctrl-C or SIGTERM saves and stops; the same command goes on. At the end the model is in
    OUT/model, ready for `sake_jax.load`, with log.jsonl and loss.png beside it.
    """
    from sake_jax.conversion import SAVED_DTYPES
    from sake_jax.sharding import mesh as make_mesh
    from sake_jax.training import Trainer, read
    from sake_jax.training.figure import loss_curve

    one_of("dtype", dtype, SAVED_DTYPES)
    chosen = read(recipe, data)
    folder = out or Path("runs") / chosen.name
    trainer = Trainer(chosen, folder, make_mesh(**mesh_sizes(mesh)) if mesh else None)
    steps, begun = chosen.training.steps, int(trainer.state.step)
    if begun:
        print_line(f"going on after step {begun}")
    with _stops() as asked, Progress(*COLUMNS) as bar:
        task = bar.add_task("loss", total=steps, completed=begun)

        def show(step: int, loss: float) -> None:
            bar.update(task, completed=step, description=f"loss {loss:.3f}")
            if asked() and step < steps:
                raise KeyboardInterrupt

        try:
            trainer.train(show)
        except KeyboardInterrupt:
            said = plain_text(f"stopped and saved in {folder}; the same command goes on")
            bar.print(said, soft_wrap=True)
            raise typer.Exit(130) from None
    print_line(f"model: {trainer.publish(dtype)}")
    print_line(f"curve: {loss_curve(folder)}")


@contextlib.contextmanager
def _stops() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came, also when a scheduler takes the machine away, and in the
    background of a script, where Ctrl-C would be ignored. The second one interrupts at once."""
    came = False

    def stop(number: int, frame: Any) -> None:
        nonlocal came
        if came:
            signal.default_int_handler(number, frame)
        came = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
