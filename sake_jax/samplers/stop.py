"""When a row is finished before all of its columns are written."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array

from sake_jax.checks import require
from sake_jax.node import Node
from sake_jax.view import Canvas

Stop = Callable[[Canvas], Array]
"""`canvas -> (B,) bool`: which rows are finished. A pytree, so that its numbers are traced."""


class EndTokens(Node):
    """See `end_tokens`."""

    ids: Array

    def __call__(self, canvas: Canvas) -> Array:
        column = jnp.arange(canvas.tokens.shape[1])[None, :]
        generated = column >= canvas.generation_start
        written = ~canvas.open & ~canvas.prompt & canvas.attend & generated
        ends = written & jnp.isin(canvas.tokens, self.ids)
        first = jnp.min(jnp.where(ends, column, column.size), axis=1, keepdims=True)
        open_before = jnp.any(canvas.open & canvas.attend & (column < first), axis=1)
        return jnp.any(ends, axis=1) & ~open_before


def end_tokens(ids: Sequence[int]) -> EndTokens:
    """A row ends once it has written one of these and everything to its left.

    >>> stop = end_tokens([2])
    """
    require(len(ids) > 0, "end_tokens must name at least one token id", ids, "or leave it out")
    return EndTokens(jnp.asarray(ids, jnp.int32))
