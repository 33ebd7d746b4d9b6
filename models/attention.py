"""Attention of the computed columns, with keys and values of the others from a cache."""

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


class AttentionInput(Node):
    """Where the T queries stand among the L columns, and which P of the columns are keys."""

    rotary: Leaf
    """(2, B, P, head_dim / 2) cosines and sines of the keys' rotary angles, or None."""
    visible: Leaf
    """(B, T, P) which keys each query looks at."""
    query_start: Leaf
    """() the column of the first query."""
    key_start: Leaf
    """() the column of the first key."""


class KVCache(Node):
    """Keys and values of all layers and columns: (N, B, L, K, head_dim) each.

    Keys are kept without rotary positions, which are applied when they are used: the positions of
    a canvas may then be counted anew without computing anything again.
    """

    keys: Leaf
    values: Leaf

    def read(self, layer: Array, start: Array, columns: int) -> tuple[Array, Array]:
        """One layer's keys and values of some columns."""
        _, batch, _, heads, width = self.keys.shape
        at, size = (layer, 0, start, 0, 0), (1, batch, columns, heads, width)
        part = jax.lax.dynamic_slice
        return part(self.keys, at, size)[0], part(self.values, at, size)[0]

    def write(self, layer: Array, start: Array, keys: Array, values: Array) -> "KVCache":
        """The same with one layer's computed columns in place of what stood there."""
        at = (layer, 0, start, 0, 0)
        update = jax.lax.dynamic_update_slice
        return KVCache(
            update(self.keys, keys[None].astype(self.keys.dtype), at),
            update(self.values, values[None].astype(self.values.dtype), at),
        ).spread()

    def spread(self, like: Any = None) -> "KVCache":
        """The same, split over a mesh as keys are."""
        axes = ("layers", *KEY_HEADS)
        return KVCache(constrain(self.keys, axes, like), constrain(self.values, axes, like))


def rotary_angles(positions: Array, frequencies: Array) -> Array:
    """(2, B, L, head_dim / 2) cosine and sine of position times frequency."""
    # A broadcast, not an einsum: matrix units would round positions to bfloat16.
    angles = positions.astype(jnp.float32)[:, :, None] * precise(frequencies)[None, None, :]
    # Once for all layers: without the barrier they are computed again wherever they are used.
    return jax.lax.optimization_barrier(jnp.stack([jnp.cos(angles), jnp.sin(angles)]))


def frequencies(theta: float, head_dim: int) -> Array:
    """θ^(-2i / head_dim), in float32."""
    return theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)


def rotate(x: Array, angles: Array) -> Array:
    """Turns the halves of every head against each other, in float32 (not interleaved); entries
    that there are no angles for, the last ones, stay as they are."""
    half = angles.shape[-1]
    left, right, rest = jnp.split(precise(x), (half, 2 * half), axis=-1)
    cos, sin = angles[:, :, :, None, :]
    turned = [left * cos - right * sin, right * cos + left * sin, rest]
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


class Attention(nnx.Module):
    """Multi-head attention; fewer key heads than query heads share (grouped queries)."""

    def __init__(self, c: NetworkConfig, *, rngs: nnx.Rngs):
        options = {"bias": c.qkv_bias, "quantized": c.quantized, "rngs": rngs}
        self.heads, self.key_heads, self.head_dim = c.H, c.K, c.head_dim
        self.kernel, self.scale = c.attention, None
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
        """Queries, keys and values of the computed columns, split into heads."""
        if hasattr(self, "qkv"):
            width = self.heads * self.head_dim
            ends = (width, width + self.key_heads * self.head_dim)
            q, k, v = jnp.split(self.qkv(x), ends, axis=-1)
        else:
            q, k, v = self.query(x), self.key(x), self.value(x)
        parts = ((q, HEADS), (k, KEY_HEADS), (v, KEY_HEADS))
        q, k, v = (self.in_heads(part, axes) for part, axes in parts)
        if hasattr(self, "query_norm"):
            q, k = self.query_norm(q), self.key_norm(k)
        return q, k, v

    def in_heads(self, x: Array, axes: Axes) -> Array:
        """(B, T, heads, head_dim)."""
        return constrain(x.reshape(*x.shape[:2], -1, self.head_dim), axes)

    def __call__(
        self, x: Array, inputs: AttentionInput, cache: KVCache | None, layer: Array
    ) -> tuple[Array, KVCache | None]:
        """(B, T, D) in and out, and the cache with this layer's computed columns written."""
        q, k, v = self.project(x)
        if cache is not None:
            # Written first and read after: the queries see their own new keys among the old ones.
            cache = cache.write(layer, inputs.query_start, k, v)
            stored = cache.read(layer, inputs.key_start, inputs.visible.shape[-1])
            k, v = (part.astype(q.dtype) for part in stored)
        if inputs.rotary is not None:
            at = inputs.query_start - inputs.key_start
            own = jax.lax.dynamic_slice_in_dim(inputs.rotary, at, x.shape[1], axis=2)
            q, k = rotate(q, own), rotate(k, inputs.rotary)
        mixed = constrain(self.mixed(q, k, v, inputs.visible), HEADS)
        return self.out(mixed.reshape(*x.shape[:2], -1)), cache

    def mixed(self, q: Array, k: Array, v: Array, visible: Array) -> Array:
        """(B, T, H, head_dim) values of the visible keys, by how alike keys and queries are."""
        if self.kernel == "splash":
            attend = visible[:, 0]  # every query looks at the same keys
            return jax.lax.platform_dependent(q, k, v, attend, tpu=splash, default=_plain)
        return plain(q, k, v, visible, self.scale)


def plain(q: Array, k: Array, v: Array, visible: Array, scale: float | None = None) -> Array:
    """Attention as the compiler makes it; `visible` is (B, T, P), `scale` 1/√head_dim if None."""
    # JAX's own code promotes bfloat16, which a user's strict mode would refuse.
    with jax.numpy_dtype_promotion("standard"):
        return jax.nn.dot_product_attention(q, k, v, mask=visible[:, None], scale=scale)


def _plain(q: Array, k: Array, v: Array, attend: Array) -> Array:
    return plain(q, k, v, attend[:, None])
