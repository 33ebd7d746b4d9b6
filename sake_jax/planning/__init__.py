"""Before a pod is booked: whether a run fits, and how long it takes.

A `Job` is what is to be run, a `topology` the chips; `forecast` says what they come to.
"""

from sake_jax.planning.drafted import DraftedForecast as DraftedForecast
from sake_jax.planning.drafted import drafted as drafted
from sake_jax.planning.forecast import Forecast as Forecast
from sake_jax.planning.forecast import forecast as forecast
from sake_jax.planning.job import Job as Job
from sake_jax.planning.sweep import fastest_that_fits as fastest_that_fits
from sake_jax.planning.sweep import overheads as overheads
from sake_jax.planning.sweep import sweep as sweep
from sake_jax.planning.topology import topology as topology
