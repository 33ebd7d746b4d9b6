"""log p(continuation | context), and whether the continuation is the greedy one."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

import sake_jax as sj
from sake_jax.evaluate.harness.encoding import Pair
from sake_jax.evaluate.harness.options import Options
from sake_jax.generation import prompt_room
from sake_jax.models import LanguageModel

TOGETHER = 64
"""Pairs that are scored in one go, and then kept: of like length, for they are padded."""


class Score(NamedTuple):
    """What lm_eval wants to know of a pair."""

    nats: float
    greedy: bool
    """False where nobody looked, or where there is no greedy text."""


def parts(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """All different pairs, the longest first. A run that goes on is cut in the same places."""
    size = lambda pair: (len(pair.context) + len(pair.answer), len(pair.answer))  # noqa: E731
    order = sorted(pairs, key=lambda pair: (size(pair), pair), reverse=True)
    for at in range(0, len(order), TOGETHER):
        yield order[at : at + TOGETHER]


def score(lm: LanguageModel, pairs: Sequence[Pair], options: Options, batch: int) -> list[Score]:
    """One score for each pair; `batch` is for causal models."""
    if lm.config.network.causal:
        batch = min(batch, len(pairs))
        filled = [*pairs, *[pairs[-1]] * (-len(pairs) % batch)]
        rows = [filled[at : at + batch] for at in range(0, len(filled), batch)]
        return [score for part in rows for score in _causal(lm, part, options)][: len(pairs)]
    contexts, answers = [p.context for p in pairs], [p.answer for p in pairs]
    nats = sj.log_likelihood(
        lm,
        contexts,
        answers,
        key=jax.random.key(options.seed),
        draws=options.mc_samples,
        batch=options.mc_batch,
        scale=options.cfg,
    ).value
    looked = options.greedy and has_greedy(lm)
    greedy = is_greedy(lm, pairs, options) if looked else [False] * len(pairs)
    return [Score(float(value), same) for value, same in zip(nats, greedy, strict=True)]


def has_greedy(lm: LanguageModel) -> bool:
    """Whether there is a greedy text: not without mask token, in blocks, or told the time."""
    network = lm.config.network
    strange = lm.config.mask_id is None or network.block_size or network.time_conditioning
    return network.causal or not strange


def is_greedy(lm: LanguageModel, pairs: Sequence[Pair], options: Options) -> list[bool]:
    """Whether masked decoding at temperature 0, one token a step, writes the answers."""
    assert lm.config.mask_id is not None
    masks = [[*pair.context, *[lm.config.mask_id] * len(pair.answer)] for pair in pairs]
    length = min(prompt_room(max(map(len, masks))), lm.config.network.context)
    # A step for each column: those after the last mask are not taken.
    guidance = sj.classifier_free(options.cfg) if options.cfg else None
    sampler = sj.masked(
        lm, length=length, block=length, draw=sj.temperature(0.0), guidance=guidance
    )
    key, batch = jax.random.key(options.seed), options.mc_batch
    rows = sj.generate(lm, sampler, masks, key=key, batch=batch, infill=True).rows
    ends = [tuple(row.tokens[-len(p.answer) :]) for row, p in zip(rows, pairs, strict=True)]
    return [end == pair.answer for end, pair in zip(ends, pairs, strict=True)]


def _causal(lm: LanguageModel, pairs: Sequence[Pair], options: Options) -> list[Score]:
    """Exactly, by the chain rule."""
    longest = max(len(pair.context) + len(pair.answer) for pair in pairs)
    shape = len(pairs), min(prompt_room(longest), lm.config.network.context)
    tokens, real, own = np.zeros(shape, np.int32), np.zeros(shape, bool), np.zeros(shape, bool)
    for row, (context, answer) in enumerate(pairs):
        end = len(context) + len(answer)
        tokens[row, :end] = context + answer
        real[row, :end] = True
        own[row, len(context) : end] = True
    nats = np.where(own, np.asarray(lm.score(tokens, real), np.float64), 0).sum(axis=1)
    if not options.greedy:
        return [Score(float(value), False) for value in nats]
    rows = zip(tokens[:, None], real[:, None], strict=True)
    # One at a time: logits of a whole batch would fill the memory.
    best = np.concatenate([np.asarray(lm.logits(*row).argmax(axis=-1)) for row in rows])
    same = ((best[:, :-1] == tokens[:, 1:]) | ~own[:, 1:]).all(axis=1)
    return [Score(float(value), bool(greedy)) for value, greedy in zip(nats, same, strict=True)]
