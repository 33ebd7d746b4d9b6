"""Checkpoints in and out: any family's weights, without torch, in bounded memory, proven.

`load` reads, `convert` rewrites for sharded loading, `verify` proves, `export` writes back, and
`save` writes a model that is in memory.

>>> from sake_jax.conversion import load, locate, verify
>>> load("tinystories").config.family, verify(locate("tinystories")).ok
('llada', True)
"""

from sake_jax.conversion.catalog import built_in as built_in
from sake_jax.conversion.catalog import locate as locate
from sake_jax.conversion.catalog import model_config as model_config
from sake_jax.conversion.checkpoint import Checkpoint as Checkpoint
from sake_jax.conversion.checkpoint import in_dtype as in_dtype
from sake_jax.conversion.checkpoint import int8_config as int8_config
from sake_jax.conversion.checkpoint import open_checkpoint as open_checkpoint
from sake_jax.conversion.exporter import SAVED_DTYPES as SAVED_DTYPES
from sake_jax.conversion.exporter import export as export
from sake_jax.conversion.exporter import save as save
from sake_jax.conversion.families import Family as Family
from sake_jax.conversion.families import family as family
from sake_jax.conversion.loader import load as load
from sake_jax.conversion.loader import with_attention as with_attention
from sake_jax.conversion.parity import verify as verify
from sake_jax.conversion.rules import MismatchError as MismatchError
from sake_jax.conversion.source import CheckpointError as CheckpointError
from sake_jax.conversion.units import list_units as list_units
from sake_jax.conversion.writer import convert as convert
from sake_jax.conversion.writer import require_free as require_free
