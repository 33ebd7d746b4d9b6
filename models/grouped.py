"""Products of rows with the matrix of their own group: what experts are made of."""

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.precision import wide

FEWEST, MOST = 8, 128
"""Rows of a block: fewer waste the reading of a matrix, more are rows that another group has."""


def grouped_product(rows: Array, kernel: Array, sizes: Array) -> Array:
    """(R, i) rows, sorted by group, with the (E, i, o) matrices of their groups: (R, o).

    `jax.lax.ragged_dot`, but on a CPU, where JAX has no better way than to multiply every row with
    every matrix: E times the work. There the rows of a group are taken block by block.

    >>> rows, kernel = jnp.ones((3, 2)), jnp.array([[[1.0], [1.0]], [[5.0], [5.0]]])
    >>> grouped_product(rows, kernel, jnp.array([1, 2]))[:, 0]
    Array([ 2., 10., 10.], dtype=float32)

    Args:
      rows: those of the first group come first, then those of the second.
      kernel: a matrix for each group.
      sizes: (E,) how many rows each group has.
    """
    return jax.lax.platform_dependent(rows, kernel, sizes, cpu=_by_blocks, default=_ragged)


def _ragged(rows: Array, kernel: Array, sizes: Array) -> Array:
    return jax.lax.ragged_dot(rows, kernel, sizes, preferred_element_type=wide(rows.dtype))


@jax.custom_jvp
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


@_by_blocks.defjvp
def _tangent(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """A loop of unknown length has no transpose, the ragged product has one."""
    (rows, kernel, sizes), (moved_rows, moved_kernel, _) = primals, tangents
    moved = _ragged(moved_rows, kernel, sizes) + _ragged(rows, moved_kernel, sizes)
    return _by_blocks(rows, kernel, sizes), moved
