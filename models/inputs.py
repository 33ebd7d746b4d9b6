"""What goes into a network and what comes out: one record each."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.models.config import ModelConfig
from sake_jax.node import Node
from sake_jax.typing import Flags, Leaf, Tokens


class NetworkInput(Node):
    """What a network reads: B rows of L columns, and which T of these columns it computes.

    All of them by default. With a cache it may be fewer, from `start` on: the others are then
    seen through the keys and values that the cache keeps of them.

    >>> tokens = jnp.array([[5, 6, 7]])
    >>> inputs = NetworkInput(tokens, positions=jnp.arange(3)[None], attend=tokens > 0)
    >>> inputs.replace(start=jnp.int32(1), width=2).computed(tokens).tolist()
    [[6, 7]]
    """

    tokens: Leaf
    """(B, L)"""
    positions: Leaf
    """(B, L)"""
    attend: Leaf
    """(B, L) False at padding."""
    sigma: Leaf = None
    """(B,) the total noise, for networks that look at it."""
    cond: Leaf = None
    """(B,) a label, for networks that take one."""
    clean: Leaf = None
    """(B, L) the clean tokens beside noisy ones: the training form of block diffusion."""
    perturbation: Leaf = None
    """(B, L, D) what is added to the embeddings of the tokens; None: nothing."""
    signal: Leaf = None
    """(B, L, D) for a decoder: what it predicted last, see `EncoderDecoder`; zeros at first. With a
    cache, None is for its encoder."""
    cache: Any = None
    """A `KVCache` of all columns, or one for each kind of layer, or None."""
    start: Leaf = None
    """() the first computed column; None: the canvas' first."""
    width: int = struct.field(pytree_node=False, default=0)
    """How many columns are computed from `start` on; 0: all of them."""

    @property
    def computed_start(self) -> Array:
        """() the first computed column."""
        return jnp.int32(0) if self.start is None else self.start

    @property
    def computed_width(self) -> int:
        """T, the number of computed columns."""
        return self.width or self.tokens.shape[1]

    def computed(self, columns: Array) -> Array:
        """The computed part of an array whose axis 1 are the L columns."""
        if not self.width:
            return columns
        return jax.lax.dynamic_slice_in_dim(columns, self.computed_start, self.width, axis=1)

    def perturbed(self, embedded: Array) -> Array:
        """The embeddings of the computed columns with what is added to them."""
        if self.perturbation is None:
            return embedded
        return embedded + self.computed(self.perturbation).astype(embedded.dtype)


class NetworkOutput(Node):
    """What a network gives for the T columns it computed."""

    hidden: Leaf
    """(B, T, D) the last hidden state as the reference implementation names it."""
    features: Leaf
    """(B, T, D) the head's input."""
    cache: Any
    """The input's cache with the computed columns written, or None."""


def network_input(
    config: ModelConfig, tokens: Tokens, attend: Flags | None = None, **more: Any
) -> NetworkInput:
    """Tokens as a network reads them, at the positions that its family counts.

    Nothing is checked, so that it may stand inside `jax.jit`; `LanguageModel.network_input` checks.

    >>> import jax.numpy as jnp
    >>> from sake_jax.conversion import model_config
    >>> from sake_jax.models import network_input
    >>> network_input(model_config("llada-8b"), jnp.array([[5, 6, 7]])).positions.tolist()
    [[0, 1, 2]]

    Args:
      config: the model's.
      tokens: (B, L) token ids.
      attend: (B, L) False at padding; everything is attended by default.
      **more: further fields of `NetworkInput`.
    """
    attend = jnp.ones(tokens.shape, bool) if attend is None else attend
    return NetworkInput(tokens, count_positions(attend, config.positions), attend, **more)


def count_positions(attend: Flags, positions: str) -> Tokens:
    """(B, L) positions of columns; see `ModelConfig.positions`."""
    if positions == "columns":
        return jnp.broadcast_to(jnp.arange(attend.shape[1]), attend.shape)
    counted = jnp.cumsum(attend, axis=1, dtype=jnp.int32) - 1
    # What stands at padding is never looked at; the references put a 1 there.
    return jnp.where(attend, counted, 1)
