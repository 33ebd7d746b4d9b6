"""Random numbers that the samples of a prompt share, so that they do not do the same by chance.

Rows of one prompt stand together, `view.samples` of them, and are never cut into several batches
where a part of the sampler `couples_samples`. What a row is given here is, by itself, distributed
as if it were alone: only together do the rows of a prompt cover more.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from sake_jax.checks import require
from sake_jax.typing import Flags, Key
from sake_jax.view import View


def by_prompt(rows: Array, view: View) -> Array:
    """(Q·M, ...) -> (Q, M, ...)."""
    whole = rows.shape[0] % view.samples == 0
    rule = "samples of a prompt that look at each other must be in one batch"
    require(whole, rule, (rows.shape[0], view.samples), "keep prompts whole")
    return rows.reshape(-1, view.samples, *rows.shape[1:])


def shared_keys(keys: Key, view: View) -> Array:
    """(B,) the same key for all rows of a prompt, and no row's own."""
    first = by_prompt(keys.reshape(-1), view)[:, 0]
    return jnp.repeat(jax.vmap(lambda key: jax.random.fold_in(key, 0))(first), view.samples)


def uniforms(keys: Key, count: int) -> Float[Array, "B N"]:
    """So many for each row."""
    return jax.vmap(lambda own: jax.random.uniform(own, (count,)))(keys.reshape(-1))


def alike(view: View, also: Flags | None = None) -> Bool[Array, "Q M M"]:
    """Which samples of a prompt have the same canvas now; and the same of this, if given."""
    about = [view.tokens, view.open.astype(view.tokens.dtype)]
    if also is not None:
        about.append(also.astype(view.tokens.dtype))
    rows = by_prompt(jnp.concatenate(about, axis=1), view)
    return jnp.all(rows[:, :, None] == rows[:, None, :], axis=-1)


def lattice(keys: Key, view: View, count: int, same: Bool[Array, "Q M M"]) -> Float[Array, "B N"]:
    """Uniform numbers that rows which are the same have evenly spaced.

    The m rows of a group have (u + π(k)/m) mod 1, with a shared u and a random order π, other ones
    for each of the `count` numbers. So every row's numbers are independent and uniform, whatever
    its group is, and no interval of length 1/m has none of the group's, or two.
    """
    keys = keys.reshape(-1)
    split = jax.vmap(jax.random.split)(keys)
    order, start = (by_prompt(uniforms(split[:, at], count), view) for at in (0, 1))
    before = order[:, None, :, :] < order[:, :, None, :]  # (Q, M, M, N)
    rank = jnp.sum(same[..., None] & before, axis=2, dtype=jnp.float32)
    size = jnp.sum(same, axis=2, dtype=jnp.float32)[..., None]
    leader = jnp.argmax(same, axis=2)[..., None]  # the group's first row
    shared = jnp.take_along_axis(start, leader, axis=1)
    return spaced(shared, rank, size).reshape(keys.shape[0], count)


def spaced(start: Array, rank: Array, size: Array) -> Array:
    """(start + rank/size) mod 1: for every rank uniform if `start` is, for all ranks a lattice."""
    numbers = start + rank / size
    return numbers - jnp.floor(numbers)


def invert(chances: Float[Array, "*N V"], numbers: Float[Array, "*N"]) -> Array:
    """The outcome that a uniform number stands for: the first whose cumulated chance is above it.

    Outcomes of chance 0 are never chosen, whatever rounding does.
    """
    cumulated = jnp.cumsum(chances, axis=-1)
    aim = (numbers * cumulated[..., -1])[..., None]
    index = jnp.arange(chances.shape[-1]).reshape((1,) * (chances.ndim - 1) + (-1,))
    possible = chances > 0
    last = jnp.max(jnp.where(possible, index, 0), axis=-1)
    reached = jnp.where(possible & (cumulated > aim), index, chances.shape[-1])
    return jnp.minimum(jnp.min(reached, axis=-1), last)
