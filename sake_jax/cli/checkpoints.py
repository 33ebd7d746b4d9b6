"""Commands about checkpoints: inspect, convert, verify, export."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from sake_jax import sharding as processes
from sake_jax.cli.command import command, fields
from sake_jax.cli.options import RunOptions
from sake_jax.cli.printable import plain_text, print_line
from sake_jax.conversion import (
    Checkpoint,
    in_dtype,
    list_units,
    locate,
    open_checkpoint,
    require_free,
)
from sake_jax.conversion import convert as convert_checkpoint
from sake_jax.conversion import export as export_checkpoint
from sake_jax.conversion import verify as verify_checkpoint
from sake_jax.models import param_axes
from sake_jax.sharding import mesh_sizes, shard_shape

GOLDEN = (
    "An npz file to compare with: input_ids and logits, and attention_mask, sigma, cond, "
    "block_size or canvas where they were used."
)
MESH = "The mesh to store chunks for, such as 'tensor=8' or 'fsdp=4,tensor=2'."
DTYPE = "float32, bfloat16, float16 or int8 (quantised kernels); as stored by default."

LETTERS = {
    "V": "tokens of the vocabulary",
    "D": "width",
    "N": "layers",
    "H": "query heads",
    "K": "key and value heads",
    "F": "hidden width of the MLP, or of one expert",
}
"""What the one-letter names of sizes stand for."""

app = typer.Typer()


def parameter_table(checkpoint: Checkpoint, title: str, mesh: dict[str, int]) -> Table:
    """One line per parameter, layers together; on a mesh also what one device holds."""
    table = Table(title=plain_text(title))
    for column in ("parameter", "shape", "dtype", *(["on one device"] if mesh else [])):
        table.add_column(column)
    table.add_column("MB", justify="right")
    axes = param_axes(checkpoint.config.network)
    for path, leaf in checkpoint.weights.leaves.items():
        shapes = [leaf.shape, *([shard_shape(leaf.shape, axes[path], mesh)] if mesh else [])]
        whole, *part = (" × ".join(map(str, shape)) or "scalar" for shape in shapes)
        size = leaf.size * leaf.dtype.itemsize / 1e6
        table.add_row(plain_text(path), whole, str(leaf.dtype), *part, f"{size:,.2f}")
    return table


def summary(checkpoint: Checkpoint) -> dict[str, Any]:
    """What `inspect` says, for machines."""
    leaves = checkpoint.weights.leaves
    return {
        "folder": str(checkpoint.folder),
        "converted": checkpoint.manifest is not None,
        "config": dataclasses.asdict(checkpoint.config),
        "parameters": sum(leaf.size for leaf in leaves.values()),
        "bytes": sum(leaf.size * leaf.dtype.itemsize for leaf in leaves.values()),
        "leaves": {
            path: {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
            for path, leaf in leaves.items()
        },
    }


@command(app, epilog="Example: sake-jax inspect GSAI-ML/LLaDA-8B-Instruct")
def inspect(
    path: Annotated[str, typer.Argument(help="A model's folder, or a name on the hub.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Show a checkpoint's config, sizes and parameters; reads no weights."""
    checkpoint = open_checkpoint(locate(path))
    about = summary(checkpoint)
    if as_json:
        typer.echo(json.dumps(about, indent=2))
        return
    title = plain_text(f"{checkpoint.config.family}: {checkpoint.folder}")
    config = Table(title=title, show_header=False)
    network = about["config"].pop("network")
    for name, value in (about["config"] | network).items():
        config.add_row(name, plain_text(str(value)), LETTERS.get(name, ""))
    config.add_section()
    config.add_row("parameters", f"{about['parameters']:,}")
    config.add_row("size", f"{about['bytes'] / 1e9:,.3f} GB")
    console = Console()
    console.print(config)
    console.print(parameter_table(checkpoint, "parameters", {}))


@command(app, epilog="Example: sake-jax convert LLaDA-8B-Instruct llada-8b --dtype bfloat16")
def convert(
    source: Annotated[str, typer.Argument(help="A Hugging Face folder, or a name on the hub.")],
    destination: Annotated[Path, typer.Argument(help="A new folder.")],
    *,
    dtype: Annotated[str | None, typer.Option(help=DTYPE)] = None,
    mesh: Annotated[str | None, typer.Option(help=MESH)] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Show what would be written; write nothing.")
    ] = False,
    run: Annotated[RunOptions, fields(["distributed"])],
) -> None:
    """Write a checkpoint so that each device and process can read its part of it.

    Memory holds a few arrays at a time. A run that was killed goes on when it is started again.
    """
    sizes = mesh_sizes(mesh)
    run.connect()
    if not dry_run:
        processes.broadcast_from_leader(lambda: require_free(destination))
    folder = locate(source)
    checkpoint = in_dtype(open_checkpoint(folder), dtype)
    planned = list_units(checkpoint)
    total = sum(unit.nbytes for unit in planned)
    title = f"{folder} → {destination}: {len(planned)} arrays, {total / 1e9:,.3f} GB"
    if processes.is_leader():
        Console().print(parameter_table(checkpoint, title, sizes))
    if dry_run:
        return
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=not processes.is_leader()) as progress:
        task = progress.add_task("convert", total=total)
        convert_checkpoint(
            folder,
            destination,
            dtype=dtype,
            mesh=sizes,
            on_unit=lambda unit: progress.advance(task, unit.nbytes),
        )


@command(app, epilog="Example: sake-jax verify llada-8b --golden golden.npz")
def verify(
    path: Annotated[str, typer.Argument(help="A model's folder, or a name on the hub.")],
    golden: Annotated[Path | None, typer.Option(help=GOLDEN)] = None,
    tolerance: Annotated[float, typer.Option(help="The largest difference of a logit.")] = 2e-4,
) -> None:
    """Read every array: hashes as in the manifest, numbers finite, logits as recorded.

    Exits with 1 when something is wrong.
    """
    folder = locate(path)
    count = len(open_checkpoint(folder).source.shapes)
    with Progress(TextColumn("arrays"), BarColumn(), MofNCompleteColumn()) as progress:
        task = progress.add_task("verify", total=count)
        advance = lambda name: progress.advance(task)  # noqa: E731
        verdict = verify_checkpoint(folder, golden, tolerance=tolerance, on_array=advance)
    compared = "" if verdict.error is None else f", logits within {verdict.error:.1e}"
    for problem in verdict.problems:
        print_line(f"wrong: {problem}", error=True)
    if not verdict.ok:
        raise typer.Exit(1)
    typer.echo(f"ok: {verdict.arrays} arrays{compared}")


@command(app, epilog="Example: sake-jax export my-checkpoint my-model-hf --shard-gb 4")
def export(
    source: Annotated[Path, typer.Argument(help="A converted checkpoint.")],
    destination: Annotated[Path, typer.Argument(help="A new folder.")],
    shard_gb: Annotated[float, typer.Option(help="Size of one safetensors file.", min=1e-6)] = 2.0,
) -> None:
    """Write a checkpoint as a Hugging Face folder, bit for bit, with tokenizer and config."""
    files = export_checkpoint(source, destination, shard_bytes=int(shard_gb * 1e9))
    print_line(f"wrote {destination}: {', '.join(file.name for file in files)}")
