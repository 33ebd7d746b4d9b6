"""What drafted steps would save on chips that are not here."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sake_jax as sj
from sake_jax.planning.count import Cost, CostCounter, trace
from sake_jax.planning.forecast import parameter_marks
from sake_jax.planning.job import Job
from sake_jax.planning.topology import Topology
from sake_jax.samplers import steps_per_read

DRAFTS = (1, 2, 4, 8)
MEASURED_ON = "tinystories at temperature 0.9, one token a step"
"""What `steps_per_read` was measured on: `python benchmarks/drafts.py`."""


@dataclasses.dataclass(frozen=True)
class DraftedForecast:
    """A run whose reads serve several canvases of each row."""

    drafts: int
    read: float
    """Seconds of one read, all canvases together, after a block's first step."""
    steps_per_read: float
    """How many steps it serves, as measured on another model."""
    tokens_per_second: float
    """Of all rows together."""


def drafted(job: Job, topology: Topology, mesh: dict[str, int]) -> list[DraftedForecast]:
    """Forecasts of a job with 1, 2, 4 and 8 canvases of each row in a read, by our own count.

    A read of K canvases of B rows costs what one of K B rows does; what follows it, the head and
    guidance, is done for every step. With a cache, a block's first step has no drafts.
    """
    sampler = job.sampler({})
    plan: Any = sampler.plan
    in_blocks = hasattr(plan, "steps_per_block") and plan.refresh is None
    if not in_blocks or hasattr(sampler.denoiser, "remember"):
        return []  # nothing that can be drafted
    costs = _Costs(job, topology, dict(topology.mesh(mesh).shape))
    first, again = _shares(plan, job.canvas())
    one_read = costs.read(job.batch, again).seconds
    after = costs.step(job.batch, again).seconds - one_read
    firsts = plan.blocks if first else 0
    begun = firsts * costs.step(job.batch, first).seconds if first else 0.0
    forecasts = []
    for drafts in DRAFTS:
        served = steps_per_read(drafts)
        read = costs.read(drafts * job.batch, again).seconds
        seconds = begun + (plan.steps - firsts) * (read / served + after)
        rate = job.batch * job.request.length / seconds
        forecasts.append(DraftedForecast(drafts, read, served, rate))
    return forecasts


@dataclasses.dataclass(frozen=True)
class _Costs:
    """Of a step's parts, for other numbers of rows than the job's."""

    job: Job
    topology: Topology
    sizes: dict[str, int]

    def read(self, rows: int, shares: Sequence[float] | None) -> Cost:
        def program(sampler: sj.Sampler, params: Any, key: Any, state: Any) -> Any:
            view = sampler.plan.view(state.canvas, state.step)
            return sampler.denoiser.read(params, view, state.cache)

        return self._count(program, rows, shares)

    def step(self, rows: int, shares: Sequence[float] | None) -> Cost:
        return self._count(sj.samplers.step, rows, shares)

    def _count(self, program: Callable, rows: int, shares: Sequence[float] | None) -> Cost:
        job = dataclasses.replace(self.job, batch=rows, samples=1)
        sampler, params, key, canvas = job.arguments(self.topology.mesh(self.sizes))
        state = jax.eval_shape(sj.samplers.begin, sampler, params, key, canvas)
        arguments = (sampler, params, key, state)
        chosen = max(1, getattr(job.network, "experts_per_token", 0))
        counter = CostCounter(self.topology.chip, self.sizes, shares, chosen)
        return counter.count(trace(program, *arguments), parameter_marks(job, arguments))


def _shares(plan: Any, canvas: sj.Canvas) -> tuple[list[float] | None, list[float] | None]:
    """How often the blocks' first steps, and the others, take each branch of a cached read."""
    if not plan.cached:
        return None, None
    reread = jax.vmap(lambda step: plan.view(canvas, step).reread)(jnp.arange(plan.steps))
    choice, first = np.asarray(reread.choice), np.arange(plan.steps) % plan.steps_per_block == 0
    count = lambda of: np.bincount(of, minlength=len(reread.spans)) / max(of.size, 1)  # noqa: E731
    return count(choice[first]).tolist(), count(choice[~first]).tolist()
