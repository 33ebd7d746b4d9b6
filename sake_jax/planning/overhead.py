"""What each guidance adds to a step, from traces alone."""

from collections.abc import Callable

import sake_jax.guidance as g
from sake_jax.core import Guidance
from sake_jax.planning.job import Job
from sake_jax.planning.plan import Plan, plan
from sake_jax.planning.topology import Topology

FORMS: dict[str, Callable[[], Guidance]] = {
    "SAKE folded": lambda: g.sake(1.0, normalize="none"),
    "SAKE folded, unit RMS": lambda: g.sake(1.0),
    "SAKE, window only": lambda: g.chain(g.top_p(0.95), g.sake(1.0, normalize="none")),
    "SAKE, window only, input table": lambda: g.paper_sake(1.0, bandwidth=20.0),
    "classifier-free": lambda: g.classifier_free(1.5),
}
"""Guidances by name. Where a filter stands before SAKE, or its table is not the head's, there is a
second product with the vocabulary, for the window only."""


def overheads(job: Job, topology: Topology, mesh: dict[str, int]) -> dict[str, Plan]:
    """Plans of the job without guidance and with each of `FORMS`, not compiled."""
    bare = job.with_request(guidance="none", bandwidth=None, attention_bandwidth=None)
    found = {"none": plan(bare, topology, mesh, compile_it=False)}
    for name, make in FORMS.items():
        found[name] = plan(bare.guided_by(make()), topology, mesh, compile_it=False)
    return found
