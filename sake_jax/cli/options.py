"""Options that several commands have. Those of a request may be None: left as they are."""

import dataclasses
from typing import Annotated, Any

import typer

from sake_jax.samplers.request import Request

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
Mesh = Annotated[str | None, typer.Option(help="Devices, such as 'tensor=8'.")]


def requested(base: Request, **words: Any) -> Request:
    """A request, changed by what the command line says."""
    return dataclasses.replace(base, **{k: v for k, v in words.items() if v is not None})
