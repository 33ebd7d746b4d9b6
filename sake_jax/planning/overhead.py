"""What each guidance adds to a step, from traces alone."""

from sake_jax.planning.forms import FORMS
from sake_jax.planning.job import Job
from sake_jax.planning.plan import Plan, plan
from sake_jax.planning.topology import Topology


def overheads(job: Job, topology: Topology, mesh: dict[str, int]) -> dict[str, Plan]:
    """Plans of the job in each of `FORMS`, the first without guidance; not compiled."""
    return {
        name: plan(job.in_form(form), topology, mesh, compile_it=False)
        for name, form in FORMS.items()
    }
