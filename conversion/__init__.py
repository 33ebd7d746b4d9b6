"""Checkpoints in and out: any family's weights, without torch, in bounded memory, proven.

`load` reads, `convert` rewrites for sharded loading, `verify` proves, `export` writes back.
"""

from sake_jax.conversion.checkpoint import Checkpoint as Checkpoint
from sake_jax.conversion.checkpoint import in_dtype as in_dtype
from sake_jax.conversion.checkpoint import open_checkpoint as open_checkpoint
from sake_jax.conversion.exporter import export as export
from sake_jax.conversion.loader import load as load
from sake_jax.conversion.parity import verify as verify
from sake_jax.conversion.rules import MismatchError as MismatchError
from sake_jax.conversion.source import CheckpointError as CheckpointError
from sake_jax.conversion.units import units as units
from sake_jax.conversion.writer import convert as convert
from sake_jax.conversion.writer import require_free as require_free
