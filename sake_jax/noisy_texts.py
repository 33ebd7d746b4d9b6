"""Texts with noise, as likelihoods are estimated from them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.losses import absorb_exactly, scatter
from sake_jax.models import ModelConfig, NetworkInput
from sake_jax.node import Node
from sake_jax.typing import Key, Leaf, PerPosition, PerRow

NO_COLUMN = 2**32 - 1
"""Keys of columns are folded from smaller numbers."""


class Texts(Node):
    """Texts padded on the right, where padding moves no position."""

    inputs: NetworkInput
    open: Leaf
    """(B, L) the tokens that are scored, and so noised."""
    seed: Leaf
    """(B,) a number made of the text, for its own random draws."""


class Noisy(NamedTuple):
    """One draw of the noise for each text."""

    tokens: Array
    time: PerPosition
    level: PerRow
    """The time that a network conditioned on noise is told."""
    weight: PerRow


def absorbed(config: ModelConfig, texts: Texts, keys: Key, u: PerPosition) -> Noisy:
    """Masks ⌊un⌋ + 1 of the n open tokens of each block, u the one of its first column."""
    assert config.mask_id is not None
    columns = jnp.arange(texts.open.shape[1])
    size = config.network.block_size or columns.size
    block = columns // size
    counted = texts.open.astype(jnp.int32)
    n = jnp.zeros_like(counted).at[:, block].add(counted)[:, block]
    wide = n.astype(u.dtype)
    count = jnp.minimum(jnp.floor(u[:, block * size] * wide).astype(n.dtype) + 1, n)
    tokens = absorb_exactly(keys, texts.inputs.tokens, texts.open, count, block, config.mask_id)
    time = count.astype(u.dtype) / jnp.maximum(wide, 1)
    level = time[:, 0]
    if config.network.time_conditioning:
        # The times at which just k of n tokens are masked, weighed by 1/t as in the first form.
        again = jax.vmap(jax.random.fold_in, (0, None))(keys, NO_COLUMN)
        fewer = (n - count + 1)[:, 0].astype(u.dtype)
        level = jax.vmap(jax.random.beta)(again, count[:, 0].astype(u.dtype), fewer)
    return Noisy(tokens, time, level, jnp.ones_like(level))


def scattered(config: ModelConfig, texts: Texts, keys: Key, u: PerPosition) -> Noisy:
    """Uniform noise at t = u², weighed by dt/du = 2u: its losses, too, grow like 1/t near 0."""
    u = jnp.clip(u[:, :1], 1e-3, 1 - 1e-4)
    time = jnp.square(u)
    tokens = scatter(keys, texts.inputs.tokens, texts.open, time, config.network.V)
    columns = jnp.broadcast_to(time, tokens.shape)
    return Noisy(tokens, columns, time[:, 0], 2 * u[:, 0])
