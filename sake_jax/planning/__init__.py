"""Before a pod is booked: whether a run fits, and how long it takes."""

from sake_jax.planning.job import Job as Job
from sake_jax.planning.plan import Plan as Plan
from sake_jax.planning.plan import plan as plan
from sake_jax.planning.sweep import sweep as sweep
from sake_jax.planning.topology import topology as topology
