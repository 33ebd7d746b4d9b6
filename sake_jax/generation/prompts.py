"""From prompts to canvases of few shapes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from sake_jax.checks import require
from sake_jax.core import Canvas
from sake_jax.generation.canvas import canvas
from sake_jax.models import LanguageModel

Prompt = str | Sequence[int]

SMALLEST, STRIDE = 8, 64
"""Room for prompts grows by doubling from the first up to the second, then by the second."""


def encode(lm: LanguageModel, prompts: Sequence[Prompt]) -> list[list[int]]:
    """Token ids of texts; ids stay as they are."""
    rule = "prompts must be a sequence of texts or of token ids"
    require(not isinstance(prompts, str), rule, prompts, "put a single prompt in a list")
    rule = "prompts must hold at least one prompt"
    require(len(prompts) > 0, rule, prompts, "an empty one is []")
    size = lm.config.network.V
    found = []
    for index, prompt in enumerate(prompts):
        ids = lm.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else list(prompt)
        rule = f"prompt {index} must be a text or whole numbers from 0 to {size - 1}"
        right = all(isinstance(i, int | np.integer) and 0 <= i < size for i in ids)
        require(right, rule, prompt, "is it another tokenizer's?")
        found.append([int(i) for i in ids])
    return found


def has_chat(lm: LanguageModel) -> bool:
    """Whether the model's tokenizer has a form for chats."""
    return bool(getattr(lm.tokenizer, "chat_template", None))


def as_chat(lm: LanguageModel, text: str) -> list[int]:
    """Token ids of a chat that begins with this text, in the model's own form."""
    turns = [{"role": "user", "content": text}]
    made = lm.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    return lm.tokenizer(made, add_special_tokens=False)["input_ids"]


def room_for(tokens: int) -> int:
    """Columns for a prompt of this many tokens: a few sizes, so that few programs are compiled."""
    if tokens == 0:
        return 0
    if tokens > STRIDE:
        return -(-tokens // STRIDE) * STRIDE
    return max(SMALLEST, 1 << (tokens - 1).bit_length())


class Batch(NamedTuple):
    """Rows that are run together: `samples` of each of these prompts."""

    prompts: list[int]
    """Their indices; the last one again where a batch is filled up."""
    first: int
    """The first sample."""
    samples: int
    room: int
    real: int
    """How many of the prompts are not there to fill up."""


def batches(lengths: Sequence[int], wanted: dict[int, list[int]], batch: int) -> list[Batch]:
    """Groups (prompt, sample) pairs into batches of equal shape for each room.

    Args:
      lengths: of all prompts.
      wanted: for each prompt's index, which samples to draw, a range without gaps.
      batch: rows of a batch, at most; samples of a prompt stay together if they fit.
    """
    groups: dict[tuple, list[int]] = {}
    for index, samples in wanted.items():
        for at in range(0, len(samples), batch):
            part = samples[at : at + batch]
            groups.setdefault((room_for(lengths[index]), part[0], len(part)), []).append(index)
    found = []
    for (room, first, samples), members in groups.items():
        together = min(max(1, batch // samples), len(members))
        for at in range(0, len(members), together):
            part = members[at : at + together]
            filled = part + part[-1:] * (together - len(part))
            found.append(Batch(filled, first, samples, room, len(part)))
    return found


def canvas_for(
    lm: LanguageModel,
    ids: Sequence[Sequence[int]],
    batch: Batch,
    length: int,
    *,
    names: Sequence[int],
    infill: bool,
    cond: Any,
) -> Canvas:
    """The canvas a batch starts from; `names` are the prompts' identities for random keys."""
    config = lm.config
    made = canvas(
        [ids[index] for index in batch.prompts],
        length,
        mask_id=config.mask_id,
        pad_id=config.pad_id,
        samples=batch.samples,
        positions=config.positions,
        align=config.network.block_size or 1,
        infill=infill,
        room=0 if infill else batch.room,
    )
    each = np.repeat(batch.prompts, batch.samples)
    return made.replace(
        prompt_id=jnp.asarray(np.asarray(names)[each]),
        sample_id=made.sample_id + batch.first,
        cond=None if cond is None else jnp.asarray(np.asarray(cond)[each], jnp.int32),
    )


def check_context(
    lm: LanguageModel, ids: Sequence[Sequence[int]], length: int, infill: bool
) -> None:
    """Refuses prompts that leave no room for `length` columns in the model's context."""
    if lm.config.network.block_size:  # it slides
        return
    context = lm.config.network.context
    if infill:
        rule = f"the sampler's length must be within the model's context of {context}"
        require(length <= context, rule, length, "lower length")
        return
    for index, prompt in enumerate(ids):
        rule = f"prompt {index} and {length} columns must fit the model's context of {context}"
        remedy = "shorten the prompt, or lower length"
        require(len(prompt) + length <= context, rule, len(prompt), remedy)
