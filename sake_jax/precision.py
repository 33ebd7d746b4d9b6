"""In which precision numbers are multiplied and added."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

LOWEST = -1e30
"""The logit of a token that must not be drawn. Finite: differences of logits stay numbers."""


def safe_log(x: Array) -> Array:
    """log x, and the finite `LOWEST` where x is 0 or below."""
    return jnp.where(x > 0, jnp.log(jnp.maximum(x, 1e-37)), LOWEST)


def precise(x: Array) -> Array:
    """At least float32: kernels, softmax and entropy are not for bfloat16."""
    return x.astype(wide(x.dtype))


def wide(dtype: Any) -> Any:
    """float32, or float64 where that is what is there already."""
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def product(axes: str, left: Array, table: Array) -> Array:
    """A product with a table as it is stored: a float32 copy of it would cost gigabytes.

    Its gradient is as narrow: in float32 it would take twice the time.
    """
    left = left.astype(table.dtype)
    narrow = wide(table.dtype) != table.dtype
    return _narrow_product(axes, left, table) if narrow else _summed(axes, left, table)


def _summed(axes: str, left: Array, right: Array) -> Array:
    """einsum with sums of at least float32."""
    # einsum itself promotes to the dtype asked for, which a user's strict mode would refuse.
    with jax.numpy_dtype_promotion("standard"):
        return jnp.einsum(axes, left, right, preferred_element_type=wide(right.dtype))


_narrow_product = jax.custom_vjp(_summed, nondiff_argnums=(0,))


def _product_kept(axes: str, left: Array, table: Array) -> tuple[Array, tuple[Array, Array]]:
    return _summed(axes, left, table), (left, table)


def _product_back(axes: str, kept: tuple[Array, Array], change: Array) -> tuple[Array, Array]:
    left, table = kept
    change = change.astype(table.dtype)
    first, second, result = axes.replace("->", ",").split(",")
    to_left = _summed(f"{result},{second}->{first}", change, table)
    to_table = _summed(f"{result},{first}->{second}", change, left)
    return to_left.astype(left.dtype), to_table.astype(table.dtype)


_narrow_product.defvjp(_product_kept, _product_back)
