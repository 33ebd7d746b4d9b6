"""Numbers that change while a sample is made.

Wherever a builder takes a number it also takes a `Schedule`: a function of the
progress, which runs from 0 at the first denoising step towards 1 at the last.
The numbers of a schedule are pytree leaves, so changing them compiles nothing.

    >>> import sake_jax as sj
    >>> fade = sj.linear(2.0, 0.0)
    >>> float(fade(0.25))
    1.5
"""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import number, require
from sake_jax.node import Node
from sake_jax.typing import Number


class Schedule(Node):
    """`shape(progress, *numbers)`; `shape` is static, the numbers are leaves.

    >>> linear(2.0, 0.0).numbers
    (2.0, 0.0)
    """

    shape: Callable[..., Array] = struct.field(pytree_node=False)
    numbers: tuple = ()

    def __call__(self, progress) -> Array:
        return self.shape(jnp.asarray(progress, jnp.float32), *self.numbers)


def schedule(shape: Callable[..., Array], *numbers: float | Array) -> Schedule:
    """A schedule of your own: `shape(progress, *numbers)`.

    Define `shape` once at module level: a function made anew at each call is a
    new program to the compiler.

        >>> def bump(progress, height):
        ...     return 4 * height * progress * (1 - progress)
        >>> float(schedule(bump, 3.0)(0.5))
        3.0
    """
    require(callable(shape), "shape must be a function of progress", shape, "pass a function")
    return Schedule(
        shape, tuple(number("the numbers of a schedule", n, schedule=False) for n in numbers)
    )


def _linear(progress, start, end):
    return start + (end - start) * progress


def _cosine(progress, start, end):
    return end + (start - end) * 0.5 * (1 + jnp.cos(jnp.pi * progress))


def _piecewise(progress, starts, values):
    index = jnp.searchsorted(jnp.stack(starts), progress, side="right") - 1
    return jnp.stack(values)[jnp.maximum(index, 0)]


def linear(start: float | Array, end: float | Array) -> Schedule:
    """From `start` at progress 0 to `end` at progress 1 along a line.

    >>> float(linear(2.0, 0.0)(0.25))
    1.5
    """
    return schedule(_linear, start, end)


def cosine(start: float | Array, end: float | Array) -> Schedule:
    """From `start` at progress 0 to `end` at progress 1 along half a cosine.

    >>> round(float(cosine(2.0, 0.0)(0.5)), 4)
    1.0
    """
    return schedule(_cosine, start, end)


def piecewise(values: Mapping[float, float | Array]) -> Schedule:
    """Holds `values[p]` from progress p on, until the next p.

    >>> off_late = piecewise({0.0: 2.0, 0.8: 0.0})
    >>> float(off_late(0.79)), float(off_late(0.8))
    (2.0, 0.0)
    """
    starts = sorted(values)
    require(
        bool(starts) and starts[0] == 0,
        "piecewise must have a value for progress 0",
        dict(values),
        "add the entry 0.0",
    )
    number("the starts of piecewise", starts, at_least=0, at_most=1)
    number("the values of piecewise", list(values.values()))
    pairs = [(jnp.float32(start), jnp.float32(values[start])) for start in starts]
    return Schedule(_piecewise, tuple(zip(*pairs, strict=True)))


def at(value: Number, progress: Array) -> Array:
    """The value of a number or schedule at this progress, as float32."""
    if isinstance(value, Schedule):
        value = value(progress)
    return jnp.asarray(value, jnp.float32)
