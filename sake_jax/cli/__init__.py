"""The command line: `sake-jax --help` lists the commands."""

import gc
import json
import platform
import re
from importlib import metadata
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sake_jax.cli import bench, checkpoints, evaluate, experiment, generate, plan, play, train, view

DISTRIBUTION = "sake-jax"

app = typer.Typer(
    rich_markup_mode="markdown",  # paragraphs wrap where the terminal does
    help="Diverse, reproducible sampling from diffusion language models in JAX.",
    epilog='Example: sake-jax generate "once upon a time" --samples 8',
    no_args_is_help=True,
    add_completion=False,
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)}")
        raise typer.Exit
    return wanted


app.add_typer(bench.app)
app.add_typer(checkpoints.app)
app.add_typer(evaluate.app)
app.add_typer(experiment.app)
app.add_typer(generate.app)
app.add_typer(plan.app)
app.add_typer(play.app)
app.add_typer(train.app)
app.add_typer(view.app)


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


def packages() -> dict[str, str | None]:
    """Versions of what the library stands on; None for a package that is not installed."""
    required = (metadata.requires(DISTRIBUTION) or []) + ["jaxlib"]
    names = [re.split(r"[^\w.-]", line)[0] for line in required if "extra ==" not in line]
    versions: dict[str, str | None] = {}
    for name in sorted(names):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def accelerator() -> dict[str, Any]:
    """What JAX sees and whether it can compute. Never raises: `error` holds what went wrong."""
    seen: dict[str, Any] = {"devices": [], "matmul_precision": None, "x64": None, "error": None}
    try:
        # Imported here, so that the report is printed even when JAX itself is what is broken.
        import jax
        import jax.numpy as jnp

        settings: Any = jax.config  # its settings are added at run time, unseen by type checkers
        seen["matmul_precision"] = settings.jax_default_matmul_precision or "default"
        seen["x64"] = settings.jax_enable_x64
        seen["devices"] = [f"{device.device_kind} ({device})" for device in jax.devices()]
        ones = jnp.ones((8, 8))
        product = jax.jit(jnp.matmul)(ones, ones)
        if not bool((product == 8).all()):
            seen["error"] = f"ones(8, 8) @ ones(8, 8) must be 8 everywhere, got {product}"
    except Exception as error:
        seen["error"] = f"{type(error).__name__}: {error}"
    return seen


def report() -> dict[str, Any]:
    """Everything `doctor` says; `ok` when no package is missing and JAX computes."""
    versions, jax_report = packages(), accelerator()
    return {
        "ok": None not in versions.values() and jax_report["error"] is None,
        "version": metadata.version(DISTRIBUTION),
        "python": platform.python_version(),
        "packages": versions,
        "jax": jax_report,
    }


@app.command(epilog="Example: sake-jax doctor --json > doctor.json")
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Check the installation: versions, devices, precision, and a small compiled matmul.

    Exits with 1 when a package is missing or JAX cannot compute.
    """
    checked = report()
    if as_json:
        typer.echo(json.dumps(checked, indent=2))
    else:
        Console().print(_table(checked))
    raise typer.Exit(0 if checked["ok"] else 1)


def _table(checked: dict[str, Any]) -> Table:
    table = Table(title=f"{DISTRIBUTION} {checked['version']}", show_header=False)
    table.add_row("Python", checked["python"])
    for name, version in checked["packages"].items():
        table.add_row(name, version or "[red]missing[/red]")
    jax_report = checked["jax"]
    table.add_section()
    table.add_row("devices", "\n".join(jax_report["devices"]) or "[red]none[/red]")
    table.add_row("matmul precision", str(jax_report["matmul_precision"]))
    table.add_row("x64", str(jax_report["x64"]))
    error = jax_report["error"]
    table.add_row(
        "jitted matmul", f"[red]{escape(error)}[/red]" if error else "[green]runs[/green]"
    )
    return table


def main() -> None:
    """The console script."""
    # What was imported stays until the end: no collection has to look through it, nor the last one.
    gc.freeze()
    app()
