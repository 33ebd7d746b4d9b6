"""Options that several commands have. Those of a request may be None: left as they are."""

import dataclasses
import os
import sys
from typing import Annotated, Any

import typer

import sake_jax as sj
from sake_jax import sharding
from sake_jax.checks import require
from sake_jax.models import LanguageModel
from sake_jax.samplers.request import Request
from sake_jax.sharding import MESH_AXES

Model = Annotated[
    str, typer.Option(help="'tinystories', a folder, a converted checkpoint, or a hub name.")
]
Guidance = Annotated[
    str | None,
    typer.Option(
        help="'sake': a text repeats itself less; 'spread': the texts of a prompt differ more; "
        "'paper': the paper's algorithm to the letter; 'cfg': closer to the prompt; 'none'; "
        "or some of them, as in 'sake+spread'."
    ),
]
Strength = Annotated[float | None, typer.Option(help="Of the guidance; 0 is none.")]
Temperature = Annotated[float | None, typer.Option(min=0, help="Of the draw; 0 is greedy.")]
TopP = Annotated[float | None, typer.Option(help="Draw from the likeliest tokens, of this mass.")]
Bandwidth = Annotated[
    float | None,
    typer.Option(help="Sigma of the guidance's kernel; the rows' median distance by default."),
]
AttentionBandwidth = Annotated[
    float | None, typer.Option(help="How far, in tokens, a text's own rows repel; 20 by default.")
]
Length = Annotated[int | None, typer.Option(min=1, help="Tokens to write.")]
Steps = Annotated[
    int | None, typer.Option(min=1, help="Evaluations of the network; one a token by default.")
]
Block = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens of a block; blocks are written left to right. 32 if that divides the length.",
    ),
]
Sampler = Annotated[
    str | None,
    typer.Option(help="'masked', 'ancestral' or 'block'; by the model's family if 'auto'."),
]
Cache = Annotated[
    str | None, typer.Option(help="'none', 'prefix' or 'dual': faster, an approximation.")
]
Chat = Annotated[
    bool | None,
    typer.Option("--chat/--no-chat", help="Use the model's chat template; if it has one."),
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed writes the same texts.")]
Batch = Annotated[int, typer.Option(min=1, help="Texts that are written together.")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16 or int8; as stored by default.")]
Mesh = Annotated[
    str | None, typer.Option(help="Devices, such as 'tensor=8'; 'auto': as the model fits.")
]
Distributed = Annotated[
    bool,
    typer.Option(
        "--distributed",
        help="This is one process of several, which JAX finds; taken for granted where "
        "JAX_COORDINATOR_ADDRESS is set.",
    ),
]


def mesh_sizes(text: str | None) -> dict[str, int]:
    """'fsdp=4,tensor=2' as a dictionary."""
    sizes: dict[str, int] = {}
    for part in (text or "").split(","):
        name, _, size = part.strip().partition("=")
        if name:
            rule = f"mesh must name axes of {', '.join(MESH_AXES)} with sizes"
            good = name in MESH_AXES and size.isdigit() and int(size) > 0
            require(good, rule, part, "write it as 'fsdp=4,tensor=2'")
            sizes[name] = int(size)
    return sizes


def join(wanted: bool) -> None:
    """Connects this process with the others of its run, if there are others."""
    if wanted or sharding.connection_requested():
        _own_output()
        sharding.connect()


def _own_output() -> None:
    """Keeps standard output for results: on CPUs JAX's network library writes lines there."""
    sys.stdout.flush()
    mine = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(mine, "w", buffering=1)


def load(model: str, dtype: str | None, mesh: str | None) -> LanguageModel:
    """The model on its devices."""
    chosen = mesh if mesh == "auto" else sj.mesh(**mesh_sizes(mesh)) if mesh else None
    return sj.load(model, mesh=chosen, dtype=dtype)


def requested(base: Request, **words: Any) -> Request:
    """A request, changed by what the command line says."""
    return dataclasses.replace(base, **{k: v for k, v in words.items() if v is not None})
