"""Runs of a job by the clock of this machine, in every form in turn."""

import dataclasses
import time
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from sake_jax.models import LanguageModel
from sake_jax.planning import Job
from sake_jax.planning.bench.interleaved import Side, measure
from sake_jax.planning.forms import BASE, FORMS
from sake_jax.samplers.loop import run
from sake_jax.samplers.request import Request
from sake_jax.typing import Params

Row = dict[str, Any]
"""What was measured of a form, as JSON has it."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a model is measured."""

    prompts: tuple[int, ...] = (128, 256, 512, 1024)
    length: int = 32
    steps: int = 16
    batch: int = 1
    rounds: int = 5

    def job(self, lm: LanguageModel, prompt: int, batch: int | None = None) -> Job:
        """The run that is timed."""
        request = Request(length=self.length, steps=self.steps, temperature=0.7)
        return Job(lm.config, request, batch=batch or self.batch, prompt=prompt)


def timed(title: str, job: Job, params: Params, rounds: int, forms: Iterable[str] = FORMS) -> Row:
    """All forms of a job in turn: seconds to compile, ms of a step, tokens a second, and times the
    first form's; cores that other processes used."""
    sides, compiled = {}, {}
    for name in forms:
        sides[name], compiled[name] = program(job.in_form(FORMS[name]), params)
    found = measure(title, sides, rounds, [BASE])
    steps = job.request.steps or job.request.length
    rows = {}
    for name, seconds in found["seconds"].items():
        median = float(np.median(seconds))
        rows[name] = {
            "compile": round(compiled[name], 2),
            "ms": round(1e3 * median / steps, 3),
            "tokens_per_second": round(job.batch * job.request.length / median, 2),
            "ratio": [round(number, 4) for number in found["against"][BASE][name]],
        }
    return {"forms": rows, "others": round(found["others"], 2)}


def program(job: Job, params: Params) -> tuple[Side, float]:
    """A run that ends when its tokens are there, and the seconds that compiling it took."""
    sampler, key, canvas = job.sampler(params), jax.random.key(0), job.canvas()
    begun = time.perf_counter()
    compiled = run.lower(sampler, params, key, canvas).compile()
    seconds = time.perf_counter() - begun
    return lambda: jax.block_until_ready(compiled(sampler, params, key, canvas)), seconds
