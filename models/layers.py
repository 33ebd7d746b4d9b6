"""The pieces both networks are made of.

Kernels have the shape (outputs, inputs), as checkpoints store them: conversion moves bytes and
never transposes. Every parameter carries the logical names of its axes, for sharding.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from sake_jax.precision import precise, product
from sake_jax.sharding import HIDDEN, Axes, constrain

Layers = Mapping[str, Any]
"""The parameters of each layer, by the name of their stack: those that `network.split_layers`
has split."""
UNROLLED = 8
"""Stacks up to this many layers are unrolled: faster on a CPU, and still quick to compile."""


def parameter(key: Array, shape: tuple[int, ...], axes: Axes, deviation: float) -> nnx.Param:
    """A normal initial value, with names for its axes."""
    return nnx.Param(deviation * jax.random.normal(key, shape, jnp.float32), axes=axes)


def constant(value: float, shape: tuple[int, ...], axes: Axes, *, exact: bool = False) -> nnx.Param:
    """A constant initial value, with names for its axes; an `exact` one is never rounded."""
    return nnx.Param(jnp.full(shape, value, jnp.float32), axes=axes, exact=exact)


class Linear(nnx.Module):
    """kernel · x + bias; an int8 kernel is scaled back after the product, channel by channel."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        axes: Axes,
        rngs: nnx.Rngs,
        bias: bool = False,
        quantized: bool = False,
    ):
        self.axis = axes[0]
        self.kernel = parameter(rngs.params(), (outputs, inputs), axes, inputs**-0.5)
        if quantized:
            self.kernel = nnx.Param(jnp.zeros((outputs, inputs), jnp.int8), axes=axes)
            self.scale = constant(1.0, (outputs,), axes[:1], exact=True)
        if bias:
            self.bias = constant(0.0, (outputs,), axes[:1])

    def __call__(self, x: Array) -> Array:
        rows = "abc"[: x.ndim - 1]
        y = product(f"{rows}i,oi->{rows}o", x, self.kernel[...].astype(x.dtype))
        if hasattr(self, "scale"):
            y = times(y, self.scale[...])
        y = y.astype(x.dtype)
        y = plus(y, self.bias[...]) if hasattr(self, "bias") else y
        return constrain(y, ("batch", *(None,) * (x.ndim - 2), self.axis))


def plus(x: Array, row: Array) -> Array:
    """Adds one vector to every row."""
    return x + row.astype(x.dtype).reshape((1,) * (x.ndim - 1) + row.shape)


def times(x: Array, row: Array) -> Array:
    """Scales every row by one vector."""
    return x * row.astype(x.dtype).reshape((1,) * (x.ndim - 1) + row.shape)


class Table(nnx.Module):
    """One row per token, position or label."""

    def __init__(self, rows: int, width: int, *, axes: Axes, rngs: nnx.Rngs):
        self.rows = parameter(rngs.params(), (rows, width), axes, 1.0)

    def __call__(self, ids: Array) -> Array:
        return self.rows[...][ids]


def unit_rms(x: Array, eps: float) -> Array:
    """x / rms(x), computed in float32."""
    wide = precise(x)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return wide.astype(x.dtype)


class RMSNorm(nnx.Module):
    """x / rms(x) in float32, cast back, then scaled, as the references do."""

    def __init__(self, width: int, eps: float, axis: str | None = "embed"):
        self.eps = eps
        self.weight = constant(1.0, (width,), (axis,))

    def __call__(self, x: Array) -> Array:
        return times(unit_rms(x, self.eps), self.weight[...])


class LayerNorm(nnx.Module):
    """(x - mean) / deviation in float32, then scaled; a bias is optional."""

    def __init__(self, width: int, eps: float, *, bias: bool = False):
        self.eps = eps
        self.weight = constant(1.0, (width,), ("embed",))
        if bias:
            self.bias = constant(0.0, (width,), ("embed",))

    def __call__(self, x: Array) -> Array:
        wide = precise(x)
        wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + self.eps)
        wide = times(wide, self.weight[...])
        if hasattr(self, "bias"):
            wide = plus(wide, self.bias[...])
        return wide.astype(x.dtype)


def stack(make, count: int, rngs: nnx.Rngs):
    """`count` modules as one, their parameters stacked on a leading axis."""
    return nnx.split_rngs(splits=count)(nnx.vmap(make))(rngs)


def scan_layers(
    blocks: nnx.Module,
    x: Array,
    inputs: Any,
    cache: Any,
    layers: Any,
    *more: Array,
    first: int = 0,
) -> tuple[Array, Any]:
    """Runs (B, T, D) rows through stacked layers; returns them and the cache they have written.

    Args:
      blocks: the layers, their parameters stacked on a leading axis.
      x: (B, T, D).
      inputs: an `AttentionInput`, the same for all layers.
      cache: a `KVCache`, or None.
      layers: the parameters of each layer where `network.split_layers` split them, or None.
      *more: what the layers take besides.
      first: the place of the first of them among all layers of the network, for the cache.
    """
    graph, params = nnx.split(blocks)

    # The cache is carried, not stacked by the scan, so that it is updated in place.
    def body(carry, layer):
        (x, cache), (params, index) = carry, layer
        x, cache = nnx.merge(graph, params)(x, inputs, cache, index, *more)
        return (constrain(x, HIDDEN), cache), None

    carry = (constrain(x, HIDDEN), cache)
    if layers is not None:
        for index, layer in enumerate(layers):
            carry, _ = body(carry, (layer, jnp.int32(first + index)))
        return carry
    count = jax.tree.leaves(params)[0].shape[0]
    unroll = count if count <= UNROLLED else 1
    return jax.lax.scan(body, carry, (params, first + jnp.arange(count)), unroll=unroll)[0]
