"""A whole sample as one vector: what it says at each position, pooled over the positions."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Bool, Float

from sake_jax.core import Context
from sake_jax.guidance.select import threshold
from sake_jax.guidance.sources import embedding
from sake_jax.node import Node
from sake_jax.precision import precise, product
from sake_jax.typing import Logits, Number, PerRow

FEATURES = ("probabilities", "embeddings")
SHORTEST_TURN = 64
"""Positional pooling turns by a right angle over this many columns, or over all that are written
if they are more."""

Pool = Callable[[Float[Array, "B N F"], Bool[Array, "B N"]], Float[Array, "B G"]]
"""`(features of the written columns, which take part) -> one vector for each sample`."""


def pool_max(features: Float[Array, "B N F"], part: Bool[Array, "B N"]) -> Float[Array, "B F"]:
    """The largest value of each coordinate; 0 where no column takes part."""
    there = jnp.max(jnp.where(part[..., None], features, -jnp.inf), axis=1)
    return jnp.where(jnp.any(part, axis=1)[:, None], there, 0)


def pool_mean(features: Float[Array, "B N F"], part: Bool[Array, "B N"]) -> Float[Array, "B F"]:
    """The mean of each coordinate."""
    weight = part.astype(features.dtype)
    total = jnp.einsum("bn,bnf->bf", weight, features)
    return total / jnp.maximum(jnp.sum(weight, axis=1), 1)[:, None]


def pool_positional(
    features: Float[Array, "B N F"], part: Bool[Array, "B N"]
) -> Float[Array, "B G"]:
    """Sums that turn with the column, so that the same words elsewhere are another vector."""
    columns = features.shape[1]
    angle = jnp.arange(columns, dtype=jnp.float32) * (jnp.pi / 2 / max(SHORTEST_TURN, columns))
    turns = jnp.stack([jnp.cos(angle), jnp.sin(angle)]).astype(features.dtype)
    weight = part.astype(features.dtype)
    both = jnp.einsum("tn,bn,bnf->btf", turns, weight, features)
    return both.reshape(features.shape[0], -1)


POOLS: dict[str, Pool] = {"max": pool_max, "mean": pool_mean, "positional": pool_positional}
"""By their short names."""


class Pooling(Node):
    """How a sample becomes a vector of length one; see `pooled`."""

    jitter: Number
    features: str = struct.field(pytree_node=False, default="probabilities")
    pool: str | Pool = struct.field(pytree_node=False, default="max")
    top: int = struct.field(pytree_node=False, default=0)
    weighted: bool = struct.field(pytree_node=False, default=True)

    def vectors(self, logits: Logits, ctx: Context) -> tuple[Float[Array, "B F"], PerRow]:
        """(unit vectors, how sure each sample is of what it has not written yet)."""
        view = ctx.view
        begin = view.canvas.generation_start
        chances = self._chances(logits)
        mine = view.attend & ~view.prompt
        # Open columns outside the window have no prediction yet.
        part = (view.put(mine & ~view.open, view.window(mine)))[:, begin:]
        pool = POOLS[self.pool] if isinstance(self.pool, str) else self.pool
        pooled = pool(self._columns(chances, ctx), part)
        pooled = pooled * (1 + view.number(self.jitter, 2) * self._tie_break(pooled, ctx))
        quality = jnp.ones(logits.shape[0], logits.dtype)
        if self.weighted:
            sure = jnp.where(ctx.open, jnp.max(chances, axis=-1), 0)
            count = jnp.sum(ctx.open, axis=1, dtype=sure.dtype)
            quality = jnp.sum(sure, axis=1) / jnp.maximum(count, 1)
        return unit(pooled)[0], quality

    def _chances(self, logits: Logits) -> Logits:
        """Probabilities of the window, of the `top` likeliest tokens alone if asked for."""
        chances = jax.nn.softmax(logits)
        if self.top == 0:
            return chances
        fixed = jax.lax.stop_gradient(chances)
        count = jnp.full(chances.shape[:2], self.top, fixed.dtype)
        least = threshold(fixed, jnp.ones_like(fixed), count)[..., None]
        return jnp.where(fixed >= least, chances, 0)

    def _columns(self, chances: Logits, ctx: Context) -> Float[Array, "B N F"]:
        """What each column says: the window's predictions where open, its token elsewhere."""
        view, begin = ctx.view, ctx.view.canvas.generation_start
        if self.features == "embeddings":
            table = embedding(ctx, "input")
            said = lambda tokens: precise(table[tokens])  # noqa: E731
            predicted = product("bwv,vd->bwd", chances, table)
        else:
            said = lambda tokens: jax.nn.one_hot(tokens, chances.shape[-1])  # noqa: E731
            predicted = chances
        written = said(view.tokens[:, begin:])
        own = said(view.window(view.tokens))
        window = jnp.where(ctx.open[..., None], predicted, own)
        return jax.lax.dynamic_update_slice_in_dim(
            written, window.astype(written.dtype), view.window_start - begin, axis=1
        )

    def _tie_break(self, pooled: Float[Array, "B F"], ctx: Context) -> Float[Array, "B F"]:
        """A fixed direction for each sample, of unit variance over the coordinates.

        Samples that say the same have no direction away from each other. Tokens are told apart by
        their embeddings and not by their numbers, so that a renamed vocabulary is the same to it.
        """
        canvas, table = ctx.view.canvas, ctx.tables.output
        width = pooled.shape[1] if self.features == "embeddings" else table.shape[1]

        def direction(prompt: Array, sample: Array) -> Array:
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), prompt), sample)
            return jax.random.normal(key, (width,))

        own = jax.vmap(direction)(canvas.prompt_id, canvas.sample_id)
        if self.features == "probabilities":
            own = product("bd,vd->bv", own, table)
        own = own - jnp.mean(own, axis=1, keepdims=True)
        own = own / (jnp.std(own, axis=1, keepdims=True) + 1e-6)
        return jnp.tile(own, (1, pooled.shape[1] // own.shape[1])).astype(pooled.dtype)


def unit(vectors: Float[Array, "*N F"]) -> tuple[Float[Array, "*N F"], Float[Array, "*N"]]:
    """Vectors of length one, and the lengths they had; zeros stay zeros, with finite slopes."""
    squared = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    there = squared > 0
    length = jnp.sqrt(jnp.where(there, squared, 1))
    return jnp.where(there, vectors / length, 0), jnp.where(there, length, 0)[..., 0]
