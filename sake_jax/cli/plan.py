"""The command that plans a run on chips that are not here."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from sake_jax.cli import options
from sake_jax.cli.checkpoints import plain_errors
from sake_jax.cli.options import mesh_sizes
from sake_jax.samplers.request import Request

app = typer.Typer()

EXAMPLES = """Examples:

sake-jax plan llada-8b --topology v5e:2x4 --mesh tensor=8 --prompt 128 --length 128

sake-jax plan llada-8b --topology v5e:4x4 --sweep --batch 16 --prompt 1024 --length 256

sake-jax plan path/to/model --topology h100:8 --mesh data=8 --batch 8 --guidance sake --json
"""


@app.command(epilog=EXAMPLES)
def plan(
    model: Annotated[
        str, typer.Argument(help="'llada-8b', 'dream-7b', 'mdlm-owt', or a model's folder.")
    ],
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
    guidance: options.Guidance = None,
    strength: options.Strength = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    bandwidth: options.Bandwidth = None,
    attention_bandwidth: options.AttentionBandwidth = None,
    length: options.Length = None,
    steps: options.Steps = None,
    block: options.Block = None,
    sampler: options.Sampler = None,
    cache: options.Cache = None,
    compile_it: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Whether to ask the compiler, too.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Say whether a run fits chips that are not here, and how long its steps take.

    The sampler itself is compiled ahead of time for them; no weights are read.
    """
    with plain_errors():
        from sake_jax import planning
        from sake_jax.conversion.loader import attending
        from sake_jax.planning import report

        request = options.requested(
            Request(length=128),
            guidance=guidance,
            strength=strength,
            temperature=temperature,
            top_p=top_p,
            bandwidth=bandwidth,
            attention_bandwidth=attention_bandwidth,
            length=length,
            steps=steps,
            block=block,
            sampler=sampler,
            cache=cache,
        )
        shape = {"batch": batch, "samples": samples, "prompt": prompt, "dtype": dtype}
        job = planning.Job(attending(planning.described(model), attention), request, **shape)
        chips = planning.topology(topology)
        tried = planning.sweep(job, chips) if sweep else []
        if tried:
            found = planning.fastest_that_fits(tried) if compile_it else tried[0]
        else:
            found = planning.forecast(job, chips, mesh_sizes(mesh), compile_it)
        added = planning.overheads(job, chips, found.mesh)
        if as_json:
            guided = {name: report.as_json(each) for name, each in added.items()}
            told = report.as_json(found) | {"guidances": guided}
            meshes = [report.as_json(each) for each in tried]
            typer.echo(json.dumps(told | {"sweep": meshes}, indent=2))
            return
        parts = [f"# {model} on {chips.name}", report.render_forecast(found)]
        parts += ["## Meshes", report.render_sweep(tried)] if tried else []
        parts += ["## What guidance adds", report.render_overheads(added), report.ACCOUNTING]
        Console().print(Markdown("\n\n".join(parts)))
