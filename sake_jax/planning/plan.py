"""Whether a run fits, and how long a step of it takes."""

import dataclasses
import time
from typing import Any

import jax
from jax.sharding import Mesh

from sake_jax.models import fit
from sake_jax.planning.chips import GIB
from sake_jax.planning.count import Cost, Counter, trace
from sake_jax.planning.job import Job
from sake_jax.planning.listing import Total, total
from sake_jax.planning.topology import Topology
from sake_jax.samplers.loop import run

FULL = "RESOURCE_EXHAUSTED"


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of one chip, by the compiler."""

    arguments: int
    temporaries: int
    results: int
    peak: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is known of a job before it runs."""

    job: Job
    topology: Topology
    mesh: dict[str, int]
    cost: Cost
    """Of a step, by our own count."""
    memory: Memory | None = None
    """None if it was not compiled, or if it does not fit."""
    complaint: str = ""
    """What the compiler said of a program that does not fit."""
    compiled: Total | None = None
    """Of a step, by the compiler's estimates; None where it cannot print its own program."""
    compiler_flops: float | None = None
    """As it counts, every loop's body once; None for GPUs."""
    seconds: float = 0.0
    """That the compiler took."""

    @property
    def steps(self) -> int:
        return self.job.request.steps or self.job.request.length

    @property
    def fits(self) -> bool | None:
        """None if it was not compiled."""
        if self.memory is None:
            return False if self.complaint else None
        return self.memory.peak <= self.topology.chip.memory

    @property
    def compiler_seconds(self) -> float | None:
        """Of a step: its cycles, and what it sends; None where the compiler does not tell."""
        chip = self.topology.chip
        if self.compiled is None or not self.compiled.cycles or chip.clock is None:
            return None
        return self.compiled.cycles / chip.clock + sum(self.compiled.sent.values()) / chip.link

    @property
    def held(self) -> int:
        """Bytes of parameters on one chip."""
        return fit.held(self.job.network, self.job.leaves, self.mesh)

    @property
    def roomy(self) -> bool:
        """Whether the parameters leave room for anything else."""
        return self.held < self.topology.chip.memory

    @property
    def rate(self) -> float:
        """Tokens a second, by our own count."""
        return self.job.batch * self.job.request.length / (self.cost.seconds * self.steps)


def plan(job: Job, topology: Topology, mesh: dict[str, int], compile_it: bool = True) -> Plan:
    """Traces a job for a mesh and counts; compiles it too, unless told not to."""
    devices = topology.mesh(mesh)
    arguments = job.arguments(devices)
    found = Plan(job, topology, dict(devices.shape), step_cost(job, topology, devices, arguments))
    return compiled(found, arguments) if compile_it else found


def step_cost(job: Job, topology: Topology, mesh: Mesh, arguments: Any) -> Cost:
    """Of a step on one chip: that of a run, with its beginning, divided by its steps."""
    counter = Counter(topology.chip, dict(mesh.shape), shares(arguments[0]))
    names = [job.axes[path] for path in job.leaves]
    before, after = len(jax.tree.leaves(arguments[0])), len(jax.tree.leaves(arguments[2:]))
    order = _flat_order(arguments[1], job)
    marks = [None] * before + [names[at] for at in order] + [None] * after
    return counter.count(trace(run, *arguments), marks) * (1 / arguments[0].plan.steps)


def _flat_order(params: Any, job: Job) -> list[int]:
    """Where each flattened parameter stands among the job's leaves."""
    index = {path: at for at, path in enumerate(job.leaves)}
    paths = jax.tree_util.tree_flatten_with_path(params)[0]
    return [index[".".join(str(key.key) for key in path)] for path, _ in paths]


def shares(sampler: Any) -> tuple[float, ...] | None:
    """How often a read with a cache recomputes the window, the window and what stands before it
    (an exact cache only), and everything."""
    plan = sampler.plan
    if not plan.cached:
        return None
    blockwise = 1 / plan.steps_per_block
    if plan.cache != "exact":
        return (1 - blockwise, blockwise)
    first = 1 / plan.steps
    return (1 - blockwise, blockwise - first, first)


def compiled(found: Plan, arguments: Any) -> Plan:
    """The same with what the compiler says."""
    begun = time.perf_counter()
    try:
        program: Any = run.lower(*arguments).compile()
    except jax.errors.JaxRuntimeError as error:
        if FULL not in str(error):
            raise
        return dataclasses.replace(found, complaint=_needs(str(error)))
    seconds, analysis = time.perf_counter() - begun, program.memory_analysis()
    memory = Memory(
        analysis.argument_size_in_bytes,
        analysis.temp_size_in_bytes,
        analysis.output_size_in_bytes,
        analysis.peak_memory_in_bytes,
    )
    own = _listed(program, shares(arguments[0]))
    costs = program.cost_analysis() or {}
    return dataclasses.replace(
        found,
        memory=memory,
        compiled=own and own * (1 / arguments[0].plan.steps),
        compiler_flops=costs.get("flops"),
        seconds=seconds,
    )


def _listed(program: Any, shares: tuple[float, ...] | None) -> Total | None:
    try:
        return total(program.as_text(), shares)
    except jax.errors.JaxRuntimeError:  # some asynchronous copies cannot be read back as text
        return None


def _needs(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if "Used" in line or "Total" in line]
    return lines[0] if lines else message.strip().splitlines()[0]


def gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"
