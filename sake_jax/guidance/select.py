"""Order statistics without sorting."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Float32, Int


def threshold(
    values: Float[Array, "*N V"], weights: Float[Array, "*N V"], target: Float[Array, "*N"]
) -> Float32[Array, "*N"]:
    """The largest t for which the weights of the values >= t sum to `target`, per row.

    Exact, by bisection over the 2³² bit patterns of float32: each round is one reduction
    over the last axis, so nothing is sorted, targets may be traced, and an axis that is
    split over devices is never gathered. Minus infinity where `target` is out of reach.
    The result is float32: compare it with values of that precision.
    """
    keys = _ordered(values.astype(jnp.float32))

    def narrow(_, bracket):
        low, high = bracket  # values above `low` reach the target, those above `high` do not
        middle = (low & high) + ((low ^ high) >> 1)  # the mean without overflow
        mass = jnp.sum(jnp.where(keys >= middle[..., None], weights, 0), axis=-1)
        enough = mass >= target
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    lowest = jnp.full(target.shape, _ordered(jnp.float32(-jnp.inf)), jnp.int32)
    highest = jnp.full(target.shape, jnp.iinfo(jnp.int32).max, jnp.int32)
    low, _ = jax.lax.fori_loop(0, 32, narrow, (lowest, highest))
    return _ordered_back(low)


def first_largest(values: Float[Array, "*N V"]) -> Int[Array, "*N"]:
    """argmax: two reductions, each of which compilers do faster than the one of an argmax.

    The last index where a row holds a NaN.
    """
    size = values.shape[-1]
    index = jnp.arange(size).reshape((1,) * (values.ndim - 1) + (size,))
    top = jnp.max(values, axis=-1, keepdims=True)
    return jnp.min(jnp.where(values == top, index, size - 1), axis=-1)


def largest(
    values: Float[Array, "*N V"], count: int
) -> tuple[Float[Array, "*N K"], Int[Array, "*N K"]]:
    """The largest values and where they stand, the first of equal ones first.

    As `jax.lax.top_k`, for few: reductions, one after the other, do not gather an axis that is
    split over devices.
    """
    index = jnp.arange(values.shape[-1]).reshape((1,) * (values.ndim - 1) + (-1,))
    tops, places = [], []
    for _ in range(count):
        place = first_largest(values)[..., None]
        tops.append(jnp.max(values, axis=-1, keepdims=True))
        places.append(place)
        values = jnp.where(index == place, -jnp.inf, values)
    return jnp.concatenate(tops, axis=-1), jnp.concatenate(places, axis=-1)


def _ordered(values: Array) -> Array:
    """int32 keys that sort as the float32 values do."""
    values = jnp.where(values == 0, 0.0, values)  # minus zero ties with zero
    bits = jax.lax.bitcast_convert_type(values, jnp.int32)
    return jnp.where(bits < 0, bits ^ jnp.int32(0x7FFFFFFF), bits)


def _ordered_back(keys: Array) -> Array:
    bits = jnp.where(keys < 0, keys ^ jnp.int32(0x7FFFFFFF), keys)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
