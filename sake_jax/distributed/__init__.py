"""One run in several processes: how it starts, how they tell each other things, how it ends.

`start` connects the processes through JAX's own engine. After it a model is either spread over the
devices of all of them, `sake_jax.mesh` of all devices, and everybody runs the same program; or each
process has a whole one on its own devices, and they divide the prompts.
"""

from sake_jax.distributed.ending import leave as leave
from sake_jax.distributed.ending import lost as lost
from sake_jax.distributed.start import asked_for as asked_for
from sake_jax.distributed.start import start as start
from sake_jax.distributed.start import started as started
from sake_jax.distributed.together import fetched as fetched
from sake_jax.distributed.together import gathered as gathered
from sake_jax.distributed.together import leads as leads
from sake_jax.distributed.together import several as several
from sake_jax.distributed.together import spread as spread
from sake_jax.distributed.together import told as told
