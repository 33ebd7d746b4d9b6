"""Attention for the rows in work, with keys and values of the others from memory."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from sake_jax.models.config import NetworkConfig
from sake_jax.models.layers import Linear, RMSNorm
from sake_jax.models.splash import splash
from sake_jax.node import Node
from sake_jax.precision import precise
from sake_jax.sharding import Axes, constrain
from sake_jax.typing import Leaf

HEADS: Axes = ("batch", None, "heads")
KEY_HEADS: Axes = ("batch", None, "kv_heads")


class Sight(Node):
    """Where the T rows in work stand among the columns, and which P of those are looked at."""

    turns: Leaf
    """(2, B, P, head_dim / 2) cosines and sines of the columns' rotary angles, or None."""
    allowed: Leaf
    """(B, T, P) which columns each row may look at."""
    start: Leaf
    """() the column of the first row in work."""
    first: Leaf
    """() the first of the P columns."""


class Memory(Node):
    """Keys, before rotary, and values of all layers and columns: (N, B, L, K, head_dim).

    Without rotary: positions are applied when keys are used.
    """

    keys: Leaf
    values: Leaf

    def read(self, layer: Array, first: Array, columns: int) -> tuple[Array, Array]:
        """One layer's keys and values of some columns."""
        _, batch, _, heads, width = self.keys.shape
        at, size = (layer, 0, first, 0, 0), (1, batch, columns, heads, width)
        part = jax.lax.dynamic_slice
        return part(self.keys, at, size)[0], part(self.values, at, size)[0]

    def write(self, layer: Array, start: Array, keys: Array, values: Array) -> "Memory":
        """One layer's rows in work, in place of what stood there."""
        at = (layer, 0, start, 0, 0)
        update = jax.lax.dynamic_update_slice
        return Memory(
            update(self.keys, keys[None].astype(self.keys.dtype), at),
            update(self.values, values[None].astype(self.values.dtype), at),
        ).spread()

    def spread(self, like: Any = None) -> "Memory":
        """The same, split over a mesh as keys are."""
        axes = ("layers", *KEY_HEADS)
        return Memory(constrain(self.keys, axes, like), constrain(self.values, axes, like))


def rotary_turns(positions: Array, frequencies: Array) -> Array:
    """(2, B, L, head_dim / 2) cosine and sine of position times frequency."""
    # A broadcast, not an einsum: matrix units would round positions to bfloat16.
    angles = positions.astype(jnp.float32)[:, :, None] * precise(frequencies)[None, None, :]
    # Once for all layers: without the barrier they are computed again wherever they are used.
    return jax.lax.optimization_barrier(jnp.stack([jnp.cos(angles), jnp.sin(angles)]))


def frequencies(theta: float, head_dim: int) -> Array:
    """θ^(-2i / head_dim), in float32."""
    return theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)


def rotate(x: Array, turns: Array) -> Array:
    """Turns the halves of every head against each other, in float32 (not interleaved)."""
    left, right = jnp.split(precise(x), 2, axis=-1)
    cos, sin = turns[:, :, :, None, :]
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1).astype(x.dtype)


class Attention(nnx.Module):
    """Multi-head attention; fewer key heads than query heads share (grouped queries)."""

    def __init__(self, c: NetworkConfig, *, rngs: nnx.Rngs):
        options = {"bias": c.qkv_bias, "quantized": c.quantized, "rngs": rngs}
        self.heads, self.key_heads, self.head_dim = c.H, c.K, c.head_dim
        self.kernel = c.attention
        queries, keys = c.H * c.head_dim, c.K * c.head_dim
        if c.fused_qkv:
            self.qkv = Linear(c.D, queries + 2 * keys, axes=(None, "embed"), **options)
        else:
            self.query = Linear(c.D, queries, axes=("heads", "embed"), **options)
            self.key = Linear(c.D, keys, axes=("kv_heads", "embed"), **options)
            self.value = Linear(c.D, keys, axes=("kv_heads", "embed"), **options)
        options["bias"] = c.bias
        self.out = Linear(queries, c.D, axes=("embed", "heads"), **options)
        if c.qk_norm:
            self.query_norm = RMSNorm(c.head_dim, c.eps, axis=None)
            self.key_norm = RMSNorm(c.head_dim, c.eps, axis=None)

    def project(self, x: Array) -> tuple[Array, Array, Array]:
        """Queries, keys and values of the rows in work, split into heads."""
        if hasattr(self, "qkv"):
            width = self.heads * self.head_dim
            ends = (width, width + self.key_heads * self.head_dim)
            q, k, v = jnp.split(self.qkv(x), ends, axis=-1)
        else:
            q, k, v = self.query(x), self.key(x), self.value(x)
        q, k, v = (
            constrain(part.reshape(*x.shape[:2], -1, self.head_dim), axes)
            for part, axes in ((q, HEADS), (k, KEY_HEADS), (v, KEY_HEADS))
        )
        if hasattr(self, "query_norm"):
            q, k = self.query_norm(q), self.key_norm(k)
        return q, k, v

    def __call__(self, x: Array, sight: Sight, memory: Memory | None, layer: Array):
        """(B, T, D) in and out, and the memory with this layer's rows written."""
        q, k, v = self.project(x)
        if memory is not None:
            memory = memory.write(layer, sight.start, k, v)
            kept = memory.read(layer, sight.first, sight.allowed.shape[-1])
            k, v = (part.astype(q.dtype) for part in kept)
        if sight.turns is not None:
            at = sight.start - sight.first
            own = jax.lax.dynamic_slice_in_dim(sight.turns, at, x.shape[1], axis=2)
            q, k = rotate(q, own), rotate(k, sight.turns)
        mixed = constrain(self.mixed(q, k, v, sight.allowed), HEADS)
        return self.out(mixed.reshape(*x.shape[:2], -1)), memory

    def mixed(self, q: Array, k: Array, v: Array, allowed: Array) -> Array:
        """(B, T, H, head_dim) values of the allowed columns, by how alike keys and queries are."""
        if self.kernel == "splash":
            attend = allowed[:, 0]  # every row looks at the same ones
            return jax.lax.platform_dependent(q, k, v, attend, tpu=splash, default=_plain)
        return plain(q, k, v, allowed)


def plain(q: Array, k: Array, v: Array, allowed: Array) -> Array:
    """Attention as the compiler makes it; `allowed` is (B, T, P)."""
    # JAX's own code promotes bfloat16, which a user's strict mode would refuse.
    with jax.numpy_dtype_promotion("standard"):
        return jax.nn.dot_product_attention(q, k, v, mask=allowed[:, None])


def _plain(q: Array, k: Array, v: Array, attend: Array) -> Array:
    return plain(q, k, v, attend[:, None])
