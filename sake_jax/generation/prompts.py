"""From prompts to canvases of few shapes."""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sake_jax.chat_template import render_chats
from sake_jax.checks import require
from sake_jax.generation.canvas import HOLE, canvas
from sake_jax.models import LanguageModel
from sake_jax.text import encode_text, special_names
from sake_jax.view import Canvas

Prompt = str | Sequence[int]

SMALLEST, STRIDE = 8, 64
"""Room for prompts grows by doubling from the first up to the second, then by the second."""
PRIVATE = range(0xF0000, 0xFFFFE)
"""Characters that Unicode gives no meaning."""
GAP = re.compile(" *(_+)")
"""A gap in a text, with the spaces before it."""


def encode_prompts(
    lm: LanguageModel, prompts: Sequence[Prompt], *, special_tokens: bool = False
) -> list[list[int]]:
    """Token ids of prompts: of texts by the model's tokenizer; ids stay as they are.

    >>> import sake_jax as sj
    >>> encode_prompts(sj.load("tinystories"), ["the dog", [5, 6]])
    [[0, 347, 548], [5, 6]]

    Args:
      lm: the model.
      prompts: texts, or token ids.
      special_tokens: reads names of special tokens in texts as these tokens, not as text.
    """
    rule = "prompts must be a sequence of texts or of token ids"
    listed = isinstance(prompts, Iterable) and not isinstance(prompts, str | bytes | Mapping)
    require(listed, rule, prompts, "put a single prompt in a list")
    prompts = list(prompts)
    rule = "prompts must be a list of prompts, each a text or token ids"
    single = bool(prompts) and all(isinstance(each, int | np.integer) for each in prompts)
    require(not single, rule, prompts, "put a single prompt of token ids in a list: [[1, 2, 3]]")
    rule = "prompts must hold at least one prompt"
    require(prompts, rule, prompts, "an empty one is []")
    return [_encode(lm, at, prompt, special_tokens) for at, prompt in enumerate(prompts)]


def _encode(lm: LanguageModel, index: int, prompt: Any, special_tokens: bool) -> list[int]:
    size, name = lm.config.network.V, f"prompt {index}"
    if isinstance(prompt, str):
        require_encodable(name, prompt)
        ids = encode_text(lm.tokenizer, prompt, special_tokens=special_tokens)
    else:
        rule = f"{name} must be a text or a list of token ids"
        listed = isinstance(prompt, Sequence | np.ndarray | jax.Array)
        listed = listed and not isinstance(prompt, bytes | bytearray | memoryview)
        require(listed, rule, prompt, "decode bytes first; an empty prompt is []")
        ids = np.asarray(prompt).tolist() if hasattr(prompt, "dtype") else list(prompt)
    rule = f"{name} must be a text or whole numbers from 0 to {size - 1}"
    right = all(isinstance(i, int | np.integer) and i is not True and i is not False for i in ids)
    least = HOLE if lm.config.mask_id is None else 0
    right = right and all(least <= i < size for i in ids)
    require(right, rule, prompt, "encode it with this model's tokenizer")
    return [int(i) for i in ids]


def require_encodable(name: str, text: str) -> None:
    """Refuses a text with halves of characters (lone surrogates), which no tokenizer takes.

    >>> require_encodable("the prompt", "any text")
    """
    halves = [character for character in text if "\ud800" <= character <= "\udfff"]
    rule, remedy = f"{name} must be a text without lone surrogates", "it was decoded wrongly"
    require(not halves, rule, halves[:3], f"{remedy}: read it as UTF-8")


def read_prompts(file: str | Path) -> list[str]:
    """Prompts from a file, one on each line; blank lines are left out.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write("the dog\\n\\nthe cat\\n")
    ...     _ = file.flush()
    ...     read_prompts(file.name)
    ['the dog', 'the cat']
    """
    try:
        return split_prompts(Path(file).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} must be text in UTF-8, got {error}; convert it.") from error


def split_prompts(text: str) -> list[str]:
    """The lines of a text that are not blank. A prompt may hold any other separator, as U+2028.

    >>> split_prompts("the dog\\u2028and the cat\\n\\n")
    ['the dog\\u2028and the cat']
    """
    prompts = [line for line in text.split("\n") if line.strip()]
    require(prompts, "prompts must hold a line of text", "none", "an empty prompt is ''")
    return prompts


def has_chat_template(lm: LanguageModel) -> bool:
    """Whether the model's tokenizer has a form for chats.

    >>> import sake_jax as sj
    >>> has_chat_template(sj.load("tinystories"))
    False
    """
    return bool(getattr(lm.tokenizer, "chat_template", None))


def chat_prompts(
    lm: LanguageModel, texts: Sequence[str], *, special_tokens: bool = False
) -> list[list[int]]:
    """Token ids of chats whose first turns are these texts, in the model's own form.

    The special tokens that the template writes are special tokens. What stands in a user's text is
    text, also if it looks like one of them, unless `special_tokens`.

    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")  # which has no such form of its own
    >>> lm.tokenizer.chat_template = "{{ messages[0]['content'] }}"
    >>> chat_prompts(lm, ["the dog"])
    [[347, 548]]
    """
    for at, text in enumerate(texts):
        require_encodable(f"prompt {at}", text)
    names = [] if special_tokens else special_names(lm.tokenizer)
    looks_special = re.compile("|".join(map(re.escape, names)) or r"(?!)")
    # A name inside a text is replaced by a character that is in no text, and put back as text.
    used, seen = (
        set().union(*texts),
        {name for text in texts for name in looks_special.findall(text)},
    )
    free = (chr(point) for point in PRIVATE if chr(point) not in used)
    stand_ins = dict(zip(sorted(seen), free, strict=False))
    hidden = [looks_special.sub(lambda match: stand_ins[match[0]], text) for text in texts]
    chats = render_chats(lm.tokenizer, [[{"role": "user", "content": text}] for text in hidden])
    names_of = {character: name for name, character in stand_ins.items()}
    return [_chat_ids(lm, chat, names_of) for chat in chats]


def _chat_ids(lm: LanguageModel, chat: str, hidden: Mapping[str, str]) -> list[int]:
    """The ids of a rendered chat: the template writes the tokenizer's special tokens itself.

    `hidden` are the names that stand in users' texts, by the characters that stand for them.
    """
    pieces = re.split(f"([{''.join(hidden)}])", chat) if hidden else [chat]
    encode = functools.partial(encode_text, lm.tokenizer, around=False)
    parts = (
        encode(hidden[piece]) if piece in hidden else encode(piece, special_tokens=True)
        for piece in pieces
        if piece
    )
    return [at for part in parts for at in part]


def gap_prompts(
    lm: LanguageModel, texts: Sequence[str], *, special_tokens: bool = False
) -> list[list[int]]:
    """Token ids of texts with gaps, for `generate(infill=True)`: each _ is a token to write.

    Spaces before a gap belong to it, since most tokens that begin a word bring their own.

    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> lm.config.mask_id, gap_prompts(lm, ["the __ dog"])  # the first token begins a text
    (2047, [[0, 347, 2047, 2047, 548]])
    """
    hole = HOLE if lm.config.mask_id is None else lm.config.mask_id
    encode = functools.partial(encode_text, lm.tokenizer, special_tokens=special_tokens)
    made = []
    for at, text in enumerate(texts):
        require_encodable(f"prompt {at}", text)
        rule, remedy = f"prompt {at} must have a gap to write", "mark each missing token with _"
        require(GAP.search(text), rule, text, remedy)
        given, *rest = GAP.split(text)  # then a gap and what follows it, in turn
        ids = encode("") + encode(given, around=False)
        for gap, given in zip(rest[::2], rest[1::2], strict=True):
            ids += [hole] * len(gap) + encode(given, around=False)
        made.append(ids)
    return made


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
    return None if network.lookback else network.context


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
    align: int,
) -> Canvas:
    """The canvas a batch starts from; `names` are the prompts' identities for random keys, and
    `align` is the block of block diffusion."""
    config = lm.config
    made = canvas(
        [ids[index] for index in batch.prompts],
        length,
        mask_id=config.mask_id,
        pad_id=config.pad_id,
        samples=batch.samples,
        positions=config.positions,
        align=align,
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
