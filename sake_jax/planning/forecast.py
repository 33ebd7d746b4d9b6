"""Whether a run fits, and how long a step of it takes."""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import sake_jax as sj
from sake_jax.models import bytes_per_device
from sake_jax.planning.chips import GIB
from sake_jax.planning.count import Cost, CostCounter, trace
from sake_jax.planning.hlo import ProgramCost, program_cost
from sake_jax.planning.job import Job
from sake_jax.planning.topology import Topology

OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
"""What JAX's error begins with when a program does not fit its chip."""


@dataclasses.dataclass(frozen=True)
class MemoryUse:
    """Bytes of one chip, by the compiler."""

    arguments: int
    temporaries: int
    results: int
    peak: int


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What is known of a job before it runs."""

    job: Job
    topology: Topology
    mesh: dict[str, int]
    cost: Cost
    """Of a step, by our own count."""
    memory: MemoryUse | None = None
    """None if it was not compiled, or if it does not fit."""
    complaint: str = ""
    """What the compiler said of a program that does not fit."""
    compiled: ProgramCost | None = None
    """Of a step, by the compiler's estimates; None where it cannot print its own program."""
    compiler_flops: float | None = None
    """As it counts, every loop's body once; None for GPUs."""
    compile_seconds: float = 0.0
    """What the compiler took."""

    @property
    def steps(self) -> int:
        return self.job.request.steps or self.job.sampler({}).plan.steps

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
    def parameter_bytes(self) -> int:
        """Bytes of parameters on one chip."""
        return bytes_per_device(self.job.network, self.job.leaves, self.mesh)

    @property
    def parameters_fit(self) -> bool:
        """Whether the parameters leave room for anything else."""
        return self.parameter_bytes < self.topology.chip.memory

    @property
    def tokens_per_second(self) -> float:
        """Of all rows together, by our own count."""
        return self.job.batch * self.job.request.length / (self.cost.seconds * self.steps)


def forecast(
    job: Job, topology: Topology, mesh: dict[str, int], compile_it: bool = True
) -> Forecast:
    """Memory and time of a job on a mesh of chips that are not here.

    Args:
      job: what is to be run.
      topology: the chips.
      mesh: sizes of the axes data, fsdp and tensor; those that are left out are 1.
      compile_it: asks the compiler too, which takes half a minute for a large model; otherwise the
        program is traced and counted only.
    """
    devices = topology.mesh(mesh)
    arguments = job.arguments(devices)
    cost = step_cost(job, topology, devices, arguments)
    counted = Forecast(job, topology, dict(devices.shape), cost)
    return _compiled(counted, arguments) if compile_it else counted


def step_cost(job: Job, topology: Topology, mesh: Mesh, arguments: Any) -> Cost:
    """Of a step on one chip: that of a run, with its beginning, divided by its steps."""
    shares = read_shares(arguments[0].plan, job.canvas())
    chosen = max(1, getattr(job.network, "experts_per_token", 0))
    counter = CostCounter(topology.chip, dict(mesh.shape), shares, chosen)
    names = [job.axes[path] for path in job.leaves]
    before, after = len(jax.tree.leaves(arguments[0])), len(jax.tree.leaves(arguments[2:]))
    order = _flat_order(arguments[1], job)
    marks = [None] * before + [names[at] for at in order] + [None] * after
    return counter.count(trace(sj.run, *arguments), marks) * (1 / arguments[0].plan.steps)


def _flat_order(params: Any, job: Job) -> list[int]:
    """Where each flattened parameter stands among the job's leaves."""
    # A nested dictionary is flattened by sorted keys, the job's leaves are in the network's order.
    index = {path: at for at, path in enumerate(job.leaves)}
    paths = jax.tree_util.tree_flatten_with_path(params)[0]
    return [index[".".join(str(key.key) for key in path)] for path, _ in paths]


def read_shares(plan: Any, canvas: sj.Canvas) -> tuple[float, ...] | None:
    """Parts of a run's steps at which a cached read takes each of its branches; None without a
    cache.

    >>> canvas = sj.canvas([[1]], 8, mask_id=9)
    >>> read_shares(sj.blocks(length=8, steps=8, block=4, cache="dual"), canvas)
    (0.75, 0.25)
    """
    if not plan.cached:
        return None
    # The plan itself says what every step reads again, so no kind of cache is known here.
    reread = jax.vmap(lambda step: plan.view(canvas, step).reread)(jnp.arange(plan.steps))
    counts = np.bincount(np.asarray(reread.choice), minlength=len(reread.spans))
    return tuple(float(count) / plan.steps for count in counts)


def _compiled(counted: Forecast, arguments: Any) -> Forecast:
    """The same forecast with what the compiler says."""
    begun = time.perf_counter()
    try:
        program: Any = sj.run.lower(*arguments).compile()
    except jax.errors.JaxRuntimeError as error:
        if OUT_OF_MEMORY not in str(error):
            raise
        return dataclasses.replace(counted, complaint=_memory_line(str(error)))
    seconds, analysis = time.perf_counter() - begun, program.memory_analysis()
    memory = MemoryUse(
        analysis.argument_size_in_bytes,
        analysis.temp_size_in_bytes,
        analysis.output_size_in_bytes,
        analysis.peak_memory_in_bytes,
    )
    whole_run = _program_cost(program, read_shares(arguments[0].plan, counted.job.canvas()))
    costs = program.cost_analysis() or {}
    return dataclasses.replace(
        counted,
        memory=memory,
        compiled=whole_run and whole_run * (1 / arguments[0].plan.steps),
        compiler_flops=costs.get("flops"),
        compile_seconds=seconds,
    )


def _program_cost(program: Any, shares: tuple[float, ...] | None) -> ProgramCost | None:
    try:
        return program_cost(program.as_text(), shares)
    except jax.errors.JaxRuntimeError:  # some asynchronous copies cannot be read back as text
        return None


def _memory_line(message: str) -> str:
    """The line of an out-of-memory error that has the numbers."""
    lines = [line.strip() for line in message.splitlines() if "Used" in line or "Total" in line]
    return lines[0] if lines else message.strip().splitlines()[0]


def format_gib(size: float) -> str:
    """Bytes as text.

    >>> format_gib(3 * GIB)
    '3.00 GiB'
    """
    return f"{size / GIB:.2f} GiB"
