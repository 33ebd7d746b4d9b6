"""A text while it is written."""

from collections.abc import Iterator, Sequence

import numpy as np

from sake_jax.checks import require, whole
from sake_jax.core import declared
from sake_jax.generation.batch import batch_steps, rows_of
from sake_jax.generation.ending import TextEnd, checked
from sake_jax.generation.generate import NotFinite, check_sampler
from sake_jax.generation.prompts import (
    Batch,
    Prompt,
    canvas_for,
    check_context,
    encode_prompts,
    prompt_room,
)
from sake_jax.models import LanguageModel
from sake_jax.samplers.sampler import Sampler
from sake_jax.sharding import to_host
from sake_jax.typing import Key


def stream_text(
    lm: LanguageModel,
    sampler: Sampler,
    prompt: Prompt,
    *,
    key: Key,
    stop: Sequence[str | int] = (),
    stop_at_end: bool = True,
    special_tokens: bool = False,
    every: int = 1,
    hole: str = "_",
) -> Iterator[str]:
    """One text as it fills, after every few steps; the last is that of `generate`.

    A diffusion model does not write from left to right, so there are holes in what it has written.

    >>> import jax
    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> sampler = sj.masked(lm, length=8, draw=sj.temperature(0.7))
    >>> for text in sj.stream_text(lm, sampler, "once upon", key=jax.random.key(0), every=4):
    ...     print(text.count("_"), "tokens are missing")
    4 tokens are missing
    0 tokens are missing

    Args:
      lm: a model with a tokenizer.
      sampler: made for it.
      prompt: a text, or token ids.
      key: of the run.
      stop: token ids and strings that end the text; it ends before them.
      stop_at_end: whether the model's own end token does too.
      special_tokens: reads the names of special tokens in the prompt as these tokens.
      every: steps from one look to the next.
      hole: what stands for a token that is not written yet.
    """
    check_sampler(lm, sampler)
    every = whole("every", every)
    ids = encode_prompts(lm, [prompt], special_tokens=special_tokens)
    length = sampler.plan.length
    check_context(lm, ids, length, False)
    ending = TextEnd(lm, checked(lm, stop), stop_at_end, False)
    rule, remedy = "streaming texts needs a tokenizer", "use sj.stream for tokens"
    require(ending.decode is not None, rule, "none", remedy)
    part = Batch([0], first=0, samples=1, room=prompt_room(len(ids[0])), real=1)
    block = declared(sampler.denoiser, "block_size") or 1
    about = {"names": [0], "infill": False, "cond": None, "align": block}
    begun = canvas_for(lm, ids, part, length, **about)
    return _texts(lm, sampler, key, begun, part, ending, every, hole)


def _texts(lm, sampler, key, begun, part: Batch, ending: TextEnd, every: int, hole: str):
    """The texts, once everything has been checked: a generator would check at its first step."""
    progress = None
    shown = to_host(begun.open)[0, begun.generation_start :]
    for end, progress in batch_steps(lm, sampler, key, begun, ending, False, every):
        canvas = progress.state.canvas
        if end < sampler.plan.steps and bool(np.any(to_host(canvas.open & canvas.attend)[0])):
            tokens = to_host(canvas.tokens)[0, begun.generation_start :]
            yield _with_holes(tokens[shown].tolist(), lm.config.mask_id, ending, hole)
    assert progress is not None, "a plan has a step at least"
    rows, bad = rows_of(progress, begun, part, ending)
    if bad:
        raise NotFinite("logits must be numbers, got NaN or infinity; check the weights.", rows)
    yield rows[0].text or ""


def _with_holes(tokens: list[int], mask_id: int | None, ending: TextEnd, hole: str) -> str:
    """Stretches of written tokens as text, and a hole for each token between them."""
    pieces: list[str] = []
    stretch: list[int] = []
    assert ending.decode is not None
    for token in tokens:
        if token != mask_id:
            stretch.append(token)
            continue
        pieces += [ending.decode(stretch), hole]
        stretch = []
    return "".join([*pieces, ending.decode(stretch)])
