"""Which columns look at which: all at all, back only (causal), or block by block."""

import jax.numpy as jnp
from jax import Array

from sake_jax.models.config import NetworkConfig
from sake_jax.models.inputs import NetworkInput


def side_by_side(inputs: NetworkInput) -> NetworkInput:
    """Noisy columns, then the clean ones at the same positions."""
    twice = lambda part: jnp.concatenate([part, part], axis=1)  # noqa: E731
    tokens = jnp.concatenate([inputs.tokens, inputs.clean], axis=1)
    positions, attend = twice(inputs.positions), twice(inputs.attend)
    return inputs.replace(tokens=tokens, positions=positions, attend=attend)


def key_columns(c: NetworkConfig, inputs: NetworkInput) -> tuple[Array, int]:
    """The first column that the computed ones look at, and how many they look at.

    Where a network looks back so far and no further, the cost of a block does not grow with the
    text before it.
    """
    columns, width = inputs.tokens.shape[1], inputs.computed_width
    few = c.lookback and inputs.cache is not None and width <= 2 * c.block_size
    count = min(columns, c.lookback + c.block_size) if few else columns
    return jnp.clip(inputs.computed_start + width - count, 0, columns - count), count


def visible_keys(c: NetworkConfig, inputs: NetworkInput, positions: Array, attend: Array) -> Array:
    """(B, T, P) which of P keys, at these positions, each computed column looks at.

    In block diffusion a column sees its own block and the blocks before it. In the training form,
    noisy columns see their own noisy block and the clean blocks before it; clean columns see
    clean ones only.
    """
    batch, columns = positions.shape
    attended = jnp.broadcast_to(attend[:, None, :], (batch, inputs.computed_width, columns))
    if c.causal:
        own = inputs.computed_start + jnp.arange(inputs.computed_width)
        return attended & (jnp.arange(columns)[None, :] <= own[:, None])[None]
    if not c.block_size:
        return attended
    # Blocks are counted by position, not by column: padding on the left moves no block's edge.
    own = inputs.computed(inputs.positions)[:, :, None] // c.block_size
    other = positions[:, None, :] // c.block_size
    if inputs.clean is None:
        near = own - other < c.lookback // c.block_size if c.lookback else True
        return attended & (other <= own) & near
    clean = jnp.arange(columns) >= columns // 2
    own_clean, other_clean = clean[None, :, None], clean[None, None, :]
    among_clean = own_clean & other_clean & (other <= own)
    among_noisy = ~own_clean & ~other_clean & (other == own)
    earlier = ~own_clean & other_clean & (other < own)
    return attended & (among_clean | among_noisy | earlier)
