"""One program on many devices, and one run in many processes.

`mesh` names the devices, `sharding` and `constrain` say where arrays live on them. `connect` joins
the processes of a run through JAX's own engine. After it a model is either spread over the devices
of all of them, and everybody runs the same program; or each process has a whole one on its own
devices, and they divide the prompts.

>>> from sake_jax.sharding import mesh, several_processes
>>> dict(mesh(tensor=1).shape), several_processes()
({'data': 1, 'fsdp': 1, 'tensor': 1}, False)
"""

from sake_jax.sharding.axes import HIDDEN as HIDDEN
from sake_jax.sharding.axes import LOGITS as LOGITS
from sake_jax.sharding.axes import MESH_AXES as MESH_AXES
from sake_jax.sharding.axes import RULES as RULES
from sake_jax.sharding.axes import Axes as Axes
from sake_jax.sharding.axes import arrange as arrange
from sake_jax.sharding.axes import compilers_mesh as compilers_mesh
from sake_jax.sharding.axes import constrain as constrain
from sake_jax.sharding.axes import constrain_rows as constrain_rows
from sake_jax.sharding.axes import divisors as divisors
from sake_jax.sharding.axes import format_divisors as format_divisors
from sake_jax.sharding.axes import mesh as mesh
from sake_jax.sharding.axes import mesh_of as mesh_of
from sake_jax.sharding.axes import mesh_sizes as mesh_sizes
from sake_jax.sharding.axes import padded as padded
from sake_jax.sharding.axes import shard_shape as shard_shape
from sake_jax.sharding.axes import sharding as sharding
from sake_jax.sharding.axes import spec as spec
from sake_jax.sharding.ending import describe_lost_process as describe_lost_process
from sake_jax.sharding.ending import leave as leave
from sake_jax.sharding.messages import broadcast_from_leader as broadcast_from_leader
from sake_jax.sharding.messages import gather_from_all as gather_from_all
from sake_jax.sharding.messages import is_leader as is_leader
from sake_jax.sharding.messages import several_processes as several_processes
from sake_jax.sharding.messages import spans_processes as spans_processes
from sake_jax.sharding.messages import to_host as to_host
from sake_jax.sharding.start import connect as connect
from sake_jax.sharding.start import connected as connected
from sake_jax.sharding.start import connection_requested as connection_requested
