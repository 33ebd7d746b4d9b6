"""Products of rows with the matrix of their own group: what experts are made of."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from sake_jax.precision import wide

FEWEST, MOST = 8, 128
"""Rows of a block: fewer waste the reading of a matrix, more are rows that another group has."""


@jax.custom_jvp
def grouped_product(rows: Array, kernel: Array, sizes: Array) -> Array:
    """(R, i) rows, sorted by group, with the (E, i, o) matrices of their groups: (R, o).

    `jax.lax.ragged_dot`, but on a CPU, where JAX has no better way than to multiply every row with
    every matrix: E times the work. There the rows of a group are taken block by block. Under
    `vmap` with the same matrices all rows are sorted by group once more and make one product.

    >>> rows, kernel = jnp.ones((3, 2)), jnp.array([[[1.0], [1.0]], [[5.0], [5.0]]])
    >>> grouped_product(rows, kernel, jnp.array([1, 2]))[:, 0]
    Array([ 2., 10., 10.], dtype=float32)

    Args:
      rows: those of the first group come first, then those of the second.
      kernel: a matrix for each group.
      sizes: (E,) how many rows each group has.
    """
    return _product(rows, kernel, sizes)


@functools.partial(grouped_product.defjvp, symbolic_zeros=True)
def _tangent(primals: tuple, tangents: tuple) -> tuple[Array, Any]:
    """Neither a loop of unknown length nor a rule for `vmap` has a transpose, the ragged product
    has one."""
    rows, kernel, sizes = primals
    moves = [
        _ragged(*operands, sizes)
        for moved, operands in (
            (tangents[0], (tangents[0], kernel)),
            (tangents[1], (rows, tangents[1])),
        )
        if not isinstance(moved, SymbolicZero)
    ]
    out = grouped_product(rows, kernel, sizes)
    return out, functools.reduce(jnp.add, moves) if moves else jnp.zeros_like(out)


@jax.custom_batching.custom_vmap
def _product(rows: Array, kernel: Array, sizes: Array) -> Array:
    return jax.lax.platform_dependent(rows, kernel, sizes, cpu=_by_blocks, default=_ragged)


@_product.def_vmap
def _many(count: int, batched: list[bool], rows: Array, kernel: Array, sizes: Array) -> tuple:
    """G products at once. JAX's ragged product has no rule for them."""

    def each(x: Array, has: bool) -> Array:
        return x if has else jnp.broadcast_to(x, (count, *x.shape))

    if batched[1]:  # other matrices for each of them
        operands = (rows, kernel, sizes)
        ways = (each(x, has) for x, has in zip(operands, batched, strict=True))
        return jax.lax.map(lambda own: grouped_product(*own), tuple(ways)), True
    rows, sizes = each(rows, batched[0]), each(sizes, batched[2])
    ends, at = jnp.cumsum(sizes, axis=1), jnp.arange(rows.shape[1])
    group = jax.vmap(lambda own: jnp.searchsorted(own, at, side="right"))(ends)
    order = jnp.argsort(group.reshape(-1))
    flat = rows.reshape(-1, rows.shape[-1])
    sorted_out = grouped_product(flat[order], kernel, jnp.sum(sizes, axis=0, dtype=sizes.dtype))
    out = jnp.zeros_like(sorted_out).at[order].set(sorted_out)
    return out.reshape(count, rows.shape[1], -1), True


def _ragged(rows: Array, kernel: Array, sizes: Array) -> Array:
    return jax.lax.ragged_dot(rows, kernel, sizes, preferred_element_type=wide(rows.dtype))


def _by_blocks(rows: Array, kernel: Array, sizes: Array) -> Array:
    """The same by as many small products as there are blocks."""
    count, experts = rows.shape[0], kernel.shape[0]
    wide_dtype, most = wide(rows.dtype), max(count, 1)
    block = min(max(FEWEST, 1 << (count // experts).bit_length()), MOST)
    blocks = -(-sizes // block)
    ends, first_row = jnp.cumsum(blocks), jnp.cumsum(sizes) - sizes
    at = jnp.arange(most // block + min(experts, most))
    group = jnp.minimum(jnp.searchsorted(ends, at, side="right"), experts - 1)
    begin = first_row[group] + block * (at - (ends - blocks)[group])
    padded = jnp.pad(rows, ((0, block), (0, 0)))

    def one(at: Array, out: Array) -> Array:
        own = jax.lax.dynamic_slice_in_dim(padded, begin[at], block)
        y = jnp.dot(own, kernel[group[at]], preferred_element_type=wide_dtype)
        # A block may reach into the next group: its rows are written again by their own block.
        return jax.lax.dynamic_update_slice_in_dim(out, y, begin[at], axis=0)

    out = jnp.zeros((count + block, kernel.shape[2]), wide_dtype)
    return jax.lax.fori_loop(0, ends[-1], one, out)[:count]
