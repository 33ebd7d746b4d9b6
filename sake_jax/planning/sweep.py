"""Which mesh of some chips is fastest."""

from sake_jax.checks import require
from sake_jax.models import mesh_splits
from sake_jax.planning.job import Job
from sake_jax.planning.plan import Plan, gib, plan
from sake_jax.planning.topology import Topology


def sweep(job: Job, topology: Topology) -> list[Plan]:
    """A plan for every mesh that divides heads and batch, by our count, the fastest first; those
    whose parameters do not fit at the end."""
    sizes = [
        each
        for each in mesh_splits(job.network.H, topology.devices)
        if not job.batch % each["data"]
    ]
    found = [plan(job, topology, each, compile_it=False) for each in sizes]
    rule = f"{topology.devices} devices must divide into batch and heads"
    remedy = f"use a batch that a divisor of {topology.devices} divides"
    require(found, rule, (job.batch, job.network.H), remedy)
    return sorted(found, key=lambda each: (not each.roomy, each.cost.seconds))


def best(found: list[Plan]) -> Plan:
    """The fastest that fits by the compiler's word, which is asked for one after the other."""
    for each in found:
        if each.roomy:
            compiled = plan(each.job, each.topology, each.mesh)
            if compiled.fits:
                return compiled
    chip, least = found[0].topology.chip, min(each.held for each in found)
    rule = f"a run must fit the {gib(chip.memory)} of a {chip.name}"
    got = f"parameters of {gib(least)} a chip, and what is computed from them"
    raise ValueError(f"{rule}, got {got}; use more chips, larger ones, a smaller batch, or int8.")
