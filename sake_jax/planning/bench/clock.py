"""Runs of a job by the clock of this machine, in every form in turn."""

import dataclasses
import time
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

import sake_jax as sj
from sake_jax.planning import Job
from sake_jax.planning.bench.interleaved import Side, measure_in_turn
from sake_jax.planning.forms import BASE, FORMS
from sake_jax.typing import Params

Cell = dict[str, Any]
"""What was measured at one size, as JSON has it: its forms, and how busy the machine was."""


@dataclasses.dataclass(frozen=True)
class BenchSetting:
    """How a model is measured."""

    prompts: tuple[int, ...] = (128, 256, 512, 1024)
    length: int = 32
    steps: int = 16
    batch: int = 1
    rounds: int = 5

    def job(self, lm: sj.LanguageModel, prompt: int, batch: int | None = None) -> Job:
        """The run that is timed."""
        request = sj.Request(length=self.length, steps=self.steps, temperature=0.7)
        return Job(lm.config, request, batch=batch or self.batch, prompt=prompt)


def time_forms(
    title: str, job: Job, params: Params, rounds: int, forms: Iterable[str] = FORMS
) -> Cell:
    """Runs all forms of a job in turn.

    Gives for each form the seconds to compile, ms of a step, tokens a second and the ratio to the
    form without guidance with its interval; and the cores that other processes used.
    """
    sides, compiled = {}, {}
    for name in forms:
        sides[name], compiled[name] = compiled_run(job.in_form(FORMS[name]), params)
    times = measure_in_turn(title, sides, rounds, [BASE])
    steps = job.request.steps or job.request.length
    rows = {}
    for name, seconds in times["seconds"].items():
        median = float(np.median(seconds))
        rows[name] = {
            "compile": round(compiled[name], 2),
            "ms": round(1e3 * median / steps, 3),
            "tokens_per_second": round(job.batch * job.request.length / median, 2),
            "ratio": [round(number, 4) for number in times["against"][BASE][name]],
        }
    return {"forms": rows, "others": round(times["others"], 2)}


def compiled_run(job: Job, params: Params) -> tuple[Side, float]:
    """A run that ends when its tokens are there, and the seconds that compiling it took."""
    sampler, key, canvas = job.sampler(params), jax.random.key(0), job.canvas()
    begun = time.perf_counter()
    compiled = sj.run.lower(sampler, params, key, canvas).compile()
    seconds = time.perf_counter() - begun
    return lambda: jax.block_until_ready(compiled(sampler, params, key, canvas)), seconds
