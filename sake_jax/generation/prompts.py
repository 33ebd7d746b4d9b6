"""From prompts to canvases of few shapes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from sake_jax.checks import require
from sake_jax.core import Canvas
from sake_jax.generation.canvas import HOLE, canvas
from sake_jax.models import LanguageModel

Prompt = str | Sequence[int]

SMALLEST, STRIDE = 8, 64
"""Room for prompts grows by doubling from the first up to the second, then by the second."""


def encode_prompts(lm: LanguageModel, prompts: Sequence[Prompt]) -> list[list[int]]:
    """Token ids of prompts: of texts by the model's tokenizer; ids stay as they are.

    >>> import sake_jax as sj
    >>> encode_prompts(sj.load("tinystories"), ["the dog", [5, 6]])
    [[0, 347, 548], [5, 6]]
    """
    rule = "prompts must be a sequence of texts or of token ids"
    require(not isinstance(prompts, str), rule, prompts, "put a single prompt in a list")
    rule = "prompts must hold at least one prompt"
    require(len(prompts) > 0, rule, prompts, "an empty one is []")
    size = lm.config.network.V
    least = HOLE if lm.config.mask_id is None else 0
    encoded = []
    for index, prompt in enumerate(prompts):
        ids = lm.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else list(prompt)
        rule = f"prompt {index} must be a text or whole numbers from 0 to {size - 1}"
        right = all(isinstance(i, int | np.integer) and least <= i < size for i in ids)
        require(right, rule, prompt, "is it another tokenizer's?")
        encoded.append([int(i) for i in ids])
    return encoded


def has_chat_template(lm: LanguageModel) -> bool:
    """Whether the model's tokenizer has a form for chats.

    >>> import sake_jax as sj
    >>> has_chat_template(sj.load("tinystories"))
    False
    """
    return bool(getattr(lm.tokenizer, "chat_template", None))


def chat_prompt(lm: LanguageModel, text: str) -> list[int]:
    """Token ids of a chat whose first turn is this text, in the model's own form.

    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")  # which has no such form of its own
    >>> lm.tokenizer.chat_template = "{{ messages[0]['content'] }}"
    >>> chat_prompt(lm, "the dog")
    [347, 548]
    """
    turns = [{"role": "user", "content": text}]
    chat = lm.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    # The template writes the tokenizer's special tokens itself.
    return lm.tokenizer(chat, add_special_tokens=False)["input_ids"]


def prompt_room(tokens: int) -> int:
    """Columns for a prompt of this many tokens: a few sizes, so that few programs are compiled.

    >>> [prompt_room(tokens) for tokens in (0, 1, 9, 65)]
    [0, 8, 16, 128]
    """
    if tokens == 0:
        return 0
    if tokens > STRIDE:
        return -(-tokens // STRIDE) * STRIDE
    return max(SMALLEST, 1 << (tokens - 1).bit_length())


def prompt_context(lm: LanguageModel) -> int | None:
    """Tokens that prompt and text may have together; None where the model's context slides.

    >>> import sake_jax as sj
    >>> prompt_context(sj.load("tinystories"))
    128
    """
    network = lm.config.network
    return None if network.block_size else network.context


def fit_prompt(
    ids: Sequence[int],
    length: int,
    context: int | None,
    *,
    truncate: bool = False,
    name: str = "a prompt",
    remedy: str = "shorten the prompt, or lower length",
) -> list[int]:
    """The ids of a prompt after which `length` more tokens fit the context; else it is refused.

    >>> fit_prompt([1, 2, 3], 5, context=8)
    [1, 2, 3]
    >>> fit_prompt([1, 2, 3], 6, context=8, truncate=True)
    [2, 3]

    Args:
      ids: of the prompt.
      length: tokens that follow it.
      context: of the model, as `prompt_context` gives it; None for one that slides.
      truncate: lets a prompt lose its first ids where they do not fit.
      name: what an error calls the prompt.
      remedy: what an error says to do.
    """
    if context is None:
        return list(ids)
    room = context - length
    rule = f"{name} and {length} columns must fit the model's context of {context}"
    require(len(ids) <= room or (truncate and room > 0), rule, len(ids), remedy)
    return list(ids)[max(len(ids) - room, 0) :]


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
            groups.setdefault((prompt_room(lengths[index]), part[0], len(part)), []).append(index)
    made = []
    for (room, first, samples), members in groups.items():
        together = min(max(1, batch // samples), len(members))
        for at in range(0, len(members), together):
            part = members[at : at + together]
            filled = part + part[-1:] * (together - len(part))
            made.append(Batch(filled, first, samples, room, len(part)))
    return made


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
    context = prompt_context(lm)
    if infill and context is not None:  # the prompt is among the columns
        rule = f"the sampler's length must be within the model's context of {context}"
        require(length <= context, rule, length, "lower length")
        return
    for index, prompt in enumerate(ids):
        fit_prompt(prompt, length, context, name=f"prompt {index}")
