"""The sampler that a model's family is usually drawn with."""

from typing import Any

from sake_jax.checks import one_of, require
from sake_jax.models import LanguageModel
from sake_jax.samplers import presets
from sake_jax.samplers.step import Sampler

KINDS = ("auto", "masked", "ancestral", "block")
BLOCK = 32
"""Columns of a block for masked decoding, where they divide the length."""


def kind_of(lm: LanguageModel) -> str:
    """Which of `KINDS` a model's family is sampled with."""
    return lm.config.sampler


def usual(
    lm: LanguageModel,
    *,
    length: int,
    kind: str = "auto",
    steps: int | None = None,
    block: int | None = None,
    **options: Any,
) -> Sampler:
    """`masked`, `ancestral` or `block`, by the model's family unless `kind` says which.

    Args:
      lm: the model.
      length: tokens to write.
      kind: one of `KINDS`.
      steps: evaluations of the network, by default one a token; for "block" of each block.
      block: columns of a block of masked decoding, by default 32 where that divides the length.
      **options: of the preset.
    """
    kind = kind_of(lm) if one_of("sampler", kind, KINDS) == "auto" else kind
    if kind == "masked":
        whole = BLOCK if length % BLOCK == 0 else length
        return presets.masked(lm, length=length, steps=steps, block=block or whole, **options)
    rule, remedy = "block is for masked decoding", f"leave it out: this is {kind!r}"
    require(block is None, rule, block, remedy)
    if kind == "ancestral":
        return presets.ancestral(lm, length=length, steps=steps or length, **options)
    stepwise = {} if steps is None else {"steps": steps, "first_hitting": False}
    return presets.block(lm, length=length, **stepwise, **options)
