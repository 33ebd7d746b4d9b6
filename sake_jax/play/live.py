"""A run that is watched while it is written: what the page is told, step by step.

The page holds the same tree as a recorded run's page (`sake_jax.viewer.payload`), and these events
let it grow.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sake_jax as sj
from sake_jax.checks import require
from sake_jax.generation import encode_prompts, fit_prompt, prompt_context, prompt_room
from sake_jax.play.compilations import count_compilations
from sake_jax.play.draft import Draft
from sake_jax.viewer.payload import hundredths
from sake_jax.viewer.pieces import Pieces

Event = dict[str, Any]
UNKNOWN = -1
"""What stands, before the first step, where a model without a mask token will write."""


class LiveRun:
    """Texts with guidance, and the same without: one canvas each, which take turns.

    Everything that can be refused is refused when it is made, as `sake_jax.generate` refuses it.

    >>> lm = sj.load("tinystories")
    >>> run = LiveRun(lm, "the dog", Draft(samples=1), sj.Request(guidance="sake", length=2))
    >>> [event["kind"] for event in run.events()]
    ['begin', 'step', 'step', 'end']
    """

    def __init__(
        self,
        lm: sj.LanguageModel,
        prompt: str | Sequence[int],
        draft: Draft,
        request: sj.Request,
        special_tokens: bool = False,
    ):
        """Args:
        lm: the model.
        prompt: the beginning, as text or token ids.
        draft: how many texts, and their seed.
        request: how they are sampled.
        special_tokens: see `sake_jax.generate`.
        """
        self.lm, self.samples = lm, draft.samples
        self.key = jax.random.key(draft.seed)
        self.requests = with_and_without(request)
        self.samplers = [_with_traced_temperature(each.build(lm)) for each in self.requests]
        (self.ids,) = encode_prompts(lm, [prompt], special_tokens=special_tokens)
        fit_prompt(self.ids, request.length, prompt_context(lm), name="prompt 0")
        # Block diffusion reads a prompt's last, incomplete block with the columns after it.
        align = getattr(self.samplers[0].denoiser, "block_size", None) or 1
        self.first = -(len(self.ids) // align * align)
        config = lm.config
        self.canvas = sj.canvas(
            [self.ids],
            request.length,
            mask_id=config.mask_id,
            pad_id=config.pad_id,
            samples=draft.samples,
            positions=config.positions,
            align=align,
            room=prompt_room(len(self.ids)),
        )
        self.stop = None if config.eos_id is None else sj.end_tokens([config.eos_id])
        self.pieces = Pieces(lm.tokenizer)
        self.tokenizing: AbstractContextManager[Any] = nullcontext()
        """Held while the tokenizer is used, where other threads use it too."""

    def events(self) -> Generator[Event, None, None]:
        """What the page is told: "begin", a "step" for each step of both, "end"."""
        yield self._begin()
        streams = [
            sj.stream(each, self.lm.params, self.key, self.canvas, stop=self.stop)
            for each in self.samplers
        ]
        seen = [self._blank() for _ in streams]
        for step in range(self.samplers[0].plan.steps):
            with count_compilations() as count:
                parts = [self._advance(step, *each) for each in zip(streams, seen, strict=True)]
            seen = [tokens for _, tokens in parts]
            told = [run for run, _ in parts]
            yield {"kind": "step", "step": step, "runs": told, **self._names(), **count}
            if all(row is not None for run in told for row in run["over"]):
                break
        yield {"kind": "end"}

    def _begin(self) -> Event:
        config, plan = self.lm.config, self.samplers[0].plan
        mask = None if config.mask_id is None else self.pieces.number(config.mask_id)
        end = None if config.eos_id is None else self.pieces.number(config.eos_id)
        about = {"steps": plan.steps, "columns": plan.length, "mask": mask, "end": end}
        prompt = {"tokens": self.pieces.of(self.ids), "first": self.first}
        return {
            "kind": "begin",
            "prompts": [prompt],
            "samples": self.samples,
            "runs": [{"name": each.name, **about} for each in self.requests],
            **self._names(),
        }

    def _names(self) -> Event:
        """The tokens that the page does not know yet."""
        with self.tokenizing:
            return self.pieces.news()

    def _blank(self) -> np.ndarray:
        """(M, N) what the page shows before the first step: what is given, and noise."""
        tokens, is_open = (self._columns(part) for part in (self.canvas.tokens, self.canvas.open))
        return np.where(is_open & (self.lm.config.mask_id is None), UNKNOWN, tokens)

    def _columns(self, rows: jax.Array) -> np.ndarray:
        """(M, N) the columns that are written, in the host's memory."""
        return np.asarray(rows)[:, self.canvas.generation_start :]

    def _advance(
        self, step: int, stream: Iterator[tuple[sj.Canvas, sj.Info]], before: np.ndarray
    ) -> tuple[Event, np.ndarray]:
        """One step of one canvas: what changed, and the tokens after it."""
        begun = time.perf_counter()
        canvas, info = next(stream)
        tokens = self._columns(canvas.tokens)  # waits until the step is computed
        milliseconds = 1e3 * (time.perf_counter() - begun)
        rule = "logits must be numbers"
        got = f"NaN or infinity at step {step}"
        require(np.asarray(info.finite).all(), rule, got, "check the weights and the guidance")
        rows, columns = np.nonzero(tokens != before)
        log_p, is_open = self._columns(canvas.log_p), self._columns(canvas.open)
        written = tokens[rows, columns].tolist()
        changes = {
            "row": rows.tolist(),
            "column": columns.tolist(),
            "token": self.pieces.of(written),
            "chance": [hundredths(value) for value in log_p[rows, columns].tolist()],
        }
        over = [None if still else step for still in np.any(is_open, axis=1).tolist()]
        return changes | {"over": over, "milliseconds": round(milliseconds, 2)}, tokens


def with_and_without(request: sj.Request) -> list[sj.Request]:
    """A request and the same without guidance; itself alone where it has none."""
    plain = request.unguided
    return [request] if request.name == plain.name else [request, plain]


def _with_traced_temperature(sampler: sj.Sampler) -> sj.Sampler:
    """The sampler whose program serves every temperature: a plain 0 would be a greedy one of its
    own, without noise, that writes the same."""
    temperature = type(sj.temperature(1.0))
    parts = [
        sj.temperature(jnp.float32(part.value)) if isinstance(part, temperature) else part
        for part in sampler.draw.parts
    ]
    return sampler.replace(draw=sj.chain(*parts))
