"""The command that plans a run on chips that are not here."""

import dataclasses
import json
from typing import Annotated, Any

import typer

import sake_jax as sj
from sake_jax.cli.command import changes, command
from sake_jax.cli.screen import print_markdown
from sake_jax.sharding import mesh_sizes

app = typer.Typer()

EXAMPLES = """Examples:

sake-jax plan llada-8b --topology v5e:2x4 --mesh tensor=8 --prompt 128 --length 128

sake-jax plan llada-8b --topology v5e:4x4 --sweep --batch 16 --prompt 1024 --length 256

sake-jax plan path/to/model --topology h100:8 --mesh data=8 --batch 8 --guidance sake --json
"""


@command(app, epilog=EXAMPLES)
def plan(
    model: Annotated[
        str, typer.Argument(help="'llada-8b', 'llada2-mini', 'sdar-8b', ..., or a model's folder.")
    ],
    *,
    topology: Annotated[str, typer.Option(help="Chips, such as 'v5e:2x4' or 'h100:8'.")],
    mesh: Annotated[str | None, typer.Option(help="Devices, such as 'tensor=8'.")] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Try all meshes, compile the best.")
    ] = False,
    batch: Annotated[int, typer.Option(min=1, help="Rows together.")] = 1,
    samples: Annotated[int, typer.Option(min=1, help="Rows of one prompt.")] = 1,
    prompt: Annotated[int, typer.Option(min=0, help="Tokens of a prompt.")] = 128,
    dtype: Annotated[str, typer.Option(help="'bfloat16', 'float32' or 'int8'.")] = "bfloat16",
    attention: Annotated[
        str, typer.Option(help="'plain', or 'splash': a kernel on TPUs, for long canvases.")
    ] = "plain",
    changed: Annotated[dict[str, Any], changes(sj.Request)],
    compile_it: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Whether to ask the compiler, too.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Say whether a run fits chips that are not here, and how long its steps take.

    The sampler itself is compiled ahead of time for them; no weights are read.
    """
    from sake_jax import planning
    from sake_jax.conversion import model_config, with_attention
    from sake_jax.planning import report

    request = dataclasses.replace(sj.Request(length=128), **changed)
    shape = {"batch": batch, "samples": samples, "prompt": prompt, "dtype": dtype}
    job = planning.Job(with_attention(model_config(model), attention), request, **shape)
    chips = planning.topology(topology, compile_it)
    tried = planning.sweep(job, chips) if sweep else []
    if tried:
        chosen = planning.fastest_that_fits(tried) if compile_it else tried[0]
    else:
        chosen = planning.forecast(job, chips, mesh_sizes(mesh), compile_it)
    added = planning.overheads(job, chips, chosen.mesh)
    drafted = planning.drafted(job, chips, chosen.mesh)
    if as_json:
        guided = {name: report.as_json(each) for name, each in added.items()}
        whole = report.as_json(chosen) | {"guidances": guided}
        whole |= {"drafts": [dataclasses.asdict(each) for each in drafted]}
        meshes = [report.as_json(each) for each in tried]
        typer.echo(json.dumps(whole | {"sweep": meshes}, indent=2))
        return
    parts = [f"# {model} on {chips.name}", report.render_forecast(chosen)]
    parts += ["## Meshes", report.render_sweep(tried)] if tried else []
    parts += ["## What guidance adds", report.render_overheads(added)]
    parts += ["## With drafts", report.render_drafts(drafted)] if drafted else []
    parts.append(report.ACCOUNTING)
    print_markdown("\n\n".join(parts))
