"""What a page asks for beside how to sample."""

import dataclasses
from dataclasses import field

LARGEST_SEED = 2**31 - 1
MOST_SAMPLES = 16
"""Texts that a page shows; as many again stand beside them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    """The beginning, how many texts, and their random numbers; how it is sampled is
    `sake_jax.Request`. A field's metadata is what `typer.Option` takes."""

    prompt: str = field(
        default="once upon a time", metadata={"help": "The beginning of the texts."}
    )
    samples: int = field(
        default=4, metadata={"help": "Texts side by side.", "min": 1, "max": MOST_SAMPLES}
    )
    seed: int = field(
        default=0,
        metadata={"help": "The same seed writes the same texts.", "min": 0, "max": LARGEST_SEED},
    )
