"""What a network reads: a page of tokens, whole or some rows of it."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, struct
from jax import Array

from sake_jax.models.attention import Memory, Sight
from sake_jax.node import Node
from sake_jax.sharding import HIDDEN, constrain
from sake_jax.typing import Leaf

UNROLLED = 8
"""Stacks up to this many layers are unrolled: faster on a CPU, and still quick to compile."""


class Page(Node):
    """B rows of L columns as a network reads them."""

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


class Work(Node):
    """Which columns a network recomputes, with memory for the others; all by default."""

    start: Leaf
    """() the first of them."""
    memory: Any = None
    """A `Memory`, or None."""
    layers: Any = None
    """The parameters of each layer, where they were taken apart before a loop."""
    width: int = struct.field(pytree_node=False, default=0)
    """How many."""

    def rows(self, columns: Array) -> Array:
        """The part in work of an array whose axis 1 is the page."""
        return jax.lax.dynamic_slice_in_dim(columns, self.start, self.width, axis=1)


class Output(Node):
    """What a network gives for the rows in work."""

    hidden: Leaf
    """(B, T, D) the last hidden state as the reference implementation names it."""
    features: Leaf
    """(B, T, D) the head's input."""
    memory: Any


def whole(page: Page, memory: Memory | None = None) -> Work:
    """All columns of a page."""
    return Work(jnp.int32(0), memory, width=page.tokens.shape[1])


def through(blocks: nnx.Module, x: Array, sight: Sight, work: Work, *more: Array):
    """Scans stacked layers; the memory is carried, so that it is updated in place."""
    graph, params = nnx.split(blocks)

    def body(carry, layer):
        (x, memory), (params, index) = carry, layer
        x, memory = nnx.merge(graph, params)(x, sight, memory, index, *more)
        return (constrain(x, HIDDEN), memory), None

    carry = (constrain(x, HIDDEN), work.memory)
    if work.layers is not None:
        for index, layer in enumerate(work.layers):
            carry, _ = body(carry, (layer, jnp.int32(index)))
        return carry
    count = jax.tree.leaves(params)[0].shape[0]
    unroll = count if count <= UNROLLED else 1
    return jax.lax.scan(body, carry, (params, jnp.arange(count)), unroll=unroll)[0]
