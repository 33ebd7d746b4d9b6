"""Guidance that tells whole samples of a prompt apart: ODD, determinantal point processes, and
objectives of your own."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Float

from sake_jax.checks import number, one_of, require, whole
from sake_jax.core import Context, Guidance
from sake_jax.guidance.objectives import spectral_entropy
from sake_jax.guidance.pooling import FEATURES, POOLS, Pool, Pooling, unit
from sake_jax.schedules import linear
from sake_jax.typing import Leaf, Logits, Number

NOTHING_LEFT = 1e-6
"""A residual shorter than this has no direction."""
FLATTEST = 1e-8
"""The largest slope over positions counts as no less than this."""

ODD = linear(16.0, 0.0)
"""The reference's strength."""
DPP = linear(2.0, 0.0)
"""At which its authors found it best; it does harm sooner."""

PooledObjective = Callable[[Float[Array, "M F"], Float[Array, "M"]], Float[Array, ""]]
"""`(unit vectors of a prompt's samples, how sure each is) -> scalar`, larger is more diverse."""


class Pooled(Guidance):
    """See `pooled`.

    >>> import sake_jax as sj
    >>> isinstance(sj.odd(), Pooled), sj.odd().couples_samples
    (True, True)
    """

    strength: Number
    pooling: Pooling
    history: Leaf
    protect: Leaf
    objective: PooledObjective = struct.field(pytree_node=False)
    sequential: bool = struct.field(pytree_node=False, default=False)

    @property
    def couples_samples(self):
        return True

    def apply(self, logits, psi, state, ctx):
        move = self._in_turn if self.sequential else self._at_once
        return move(logits, ctx), state, None

    def _at_once(self, logits: Logits, ctx: Context) -> Logits:
        """All samples look at where the others are now."""
        return logits + self._step(logits, ctx)

    def _in_turn(self, logits: Logits, ctx: Context) -> Logits:
        """Each sample looks at where the earlier ones have been moved to."""
        index = jnp.arange(logits.shape[0]) % ctx.view.samples

        def move(moved: Logits, turn: Array) -> tuple[Logits, None]:
            now = (index == turn)[:, None, None]
            return jnp.where(now, moved + self._step(moved, ctx), moved), None

        return jax.lax.scan(move, logits, jnp.arange(ctx.view.samples))[0]

    def _value(self, logits: Logits, ctx: Context) -> Array:
        """The objective, summed over prompts."""
        vectors, quality = self.pooling.vectors(logits, ctx)
        samples, rows = ctx.view.samples, vectors.shape[0]
        rule = "telling samples apart must have 2 samples of each prompt or more"
        several = (samples > 1 or self.history is not None) and rows % samples == 0
        require(several, rule, (rows, samples), "raise samples, or keep prompts whole")
        vectors = vectors.reshape(rows // samples, samples, -1)
        quality = quality.reshape(rows // samples, samples)
        if self.history is not None:
            past = jnp.asarray(self.history, vectors.dtype)
            rule = f"history must be vectors of {vectors.shape[-1]} numbers"
            fits = past.ndim == 2 and past.shape[1] == vectors.shape[-1]
            require(fits, rule, past.shape, "pool them as these samples are")
            past = jnp.broadcast_to(past[None], (len(vectors), *past.shape))
            vectors = jnp.concatenate([past, vectors], axis=1)
            quality = jnp.concatenate([jnp.ones(past.shape[:2], quality.dtype), quality], axis=1)
        return jnp.sum(jax.vmap(self.objective)(vectors, quality))

    def _step(self, logits: Logits, ctx: Context) -> Logits:
        """The move along the slope: `strength` at the position of a row that moves most."""
        slope = jnp.where(ctx.open[..., None], jax.grad(self._value)(logits, ctx), 0)
        if self.protect is not None:
            slope = slope.at[:, :, jnp.asarray(self.protect)].set(0)
        largest = jnp.max(unit(slope)[1], axis=1)
        return ctx.number(self.strength) * slope / jnp.maximum(largest, FLATTEST)[:, None, None]


def orthogonal(vectors: Float[Array, "M F"], quality: Float[Array, "M"]) -> Float[Array, ""]:
    """Σ_k q_k ⟨v_k, r̂_k⟩, r̂_k the part of v_k that no earlier sample has, as a constant.

    ODD's objective. The first sample has none before it, and is free.

    >>> apart, alike = jnp.eye(2), jnp.ones((2, 2)) / jnp.sqrt(2)
    >>> sure = jnp.ones(2)
    >>> bool(orthogonal(apart, sure) > orthogonal(alike, sure))
    True
    """
    count = vectors.shape[0]

    def subtract(residuals: Array, k: Array) -> tuple[Array, Array]:
        direction, length = unit(residuals[k])
        direction = jnp.where(length > NOTHING_LEFT, direction, 0)
        later = (jnp.arange(count) > k)[:, None]
        part = (residuals @ direction)[:, None] * direction[None]
        return jnp.where(later, residuals - part, residuals), direction

    _, directions = jax.lax.scan(subtract, jax.lax.stop_gradient(vectors), jnp.arange(count))
    gains = jnp.sum(vectors * directions, axis=-1) * quality
    return jnp.sum(gains[1:])


def vendi(vectors: Float[Array, "M F"], quality: Float[Array, "M"]) -> Float[Array, ""]:
    """The entropy of the spectrum of V Vᵀ/M: the logarithm of the Vendi score of the samples, an
    effective number of different ones. Quality does not enter.

    >>> apart, alike = jnp.eye(2), jnp.ones((2, 2)) / jnp.sqrt(2)
    >>> sure = jnp.ones(2)
    >>> round(float(jnp.exp(vendi(apart, sure))), 3), round(float(jnp.exp(vendi(alike, sure))), 3)
    (2.0, 1.0)
    """
    alike = jnp.matmul(vectors, vectors.T, precision=jax.lax.Precision.HIGHEST)
    return spectral_entropy(alike / vectors.shape[0])


@dataclasses.dataclass(frozen=True)
class Determinantal:
    """log det(L + εI) - log det(L + I + εI), L = V Vᵀ ∘ (1 + quality q qᵀ); see `dpp`."""

    quality: float
    ridge: float

    def __call__(self, vectors: Float[Array, "M F"], quality: Float[Array, "M"]):
        alike = jnp.matmul(vectors, vectors.T, precision=jax.lax.Precision.HIGHEST)
        kernel = alike * (1 + self.quality * quality[:, None] * quality[None, :])
        eye = jnp.eye(vectors.shape[0], dtype=vectors.dtype)
        chosen = jnp.linalg.slogdet(kernel + self.ridge * eye)[1]
        return chosen - jnp.linalg.slogdet(kernel + (1 + self.ridge) * eye)[1]


def pooled(
    objective: PooledObjective,
    strength: Number = ODD,
    *,
    features: str = "probabilities",
    pool: str | Pool = "max",
    top: int = 0,
    weighted: bool = True,
    sequential: bool = False,
    protect: Sequence[int] | Array = (),
    history: Array | None = None,
    jitter: Number = 1e-3,
) -> Pooled:
    """Guidance along the gradient of an objective over the pooled vectors of a prompt's samples.

    A sample's vector pools over its written columns what stands there: the token's one-hot vector
    where it is written, the predicted distribution where it is open. z + γ g / max_i |g_i|: the
    position of a sample that moves most moves by γ, all of its positions by the same factor.

    >>> import sake_jax as sj
    >>> def far_from_middle(vectors, quality):
    ...     middle = jnp.mean(vectors, axis=0, keepdims=True)
    ...     return jnp.sum(quality * jnp.sum(jnp.square(vectors - middle), axis=1))
    >>> guidance = sj.guidance.pooled(far_from_middle, 4.0, pool="mean")

    Args:
      objective: a plain function `(vectors (M, F), quality (M,)) -> scalar`, larger is more
        diverse, such as `orthogonal` and `vendi` of `sj.guidance`. Vectors have length one;
        quality is the mean probability of the likeliest token over a sample's open positions.
      strength: γ, the Euclidean norm of the largest move of a position's logits.
      features: "probabilities" over the vocabulary, or "embeddings": the same times the input
        table.
      pool: "max", "mean" or "positional" (sums that turn with the column), or a function
        `(features (B, N, F), takes part (B, N)) -> (B, G)`.
      top: counts only that many likeliest tokens of a position; 0: all.
      weighted: whether quality is as above; else it is 1.
      sequential: moves one sample after the other, each of which sees where the earlier ones have
        been moved to; costs a gradient for each sample.
      protect: token ids whose logits stay as they are, such as end and padding.
      history: (H, F) vectors of earlier samples of the prompt, pooled in the same way.
      jitter: how far samples that say the same are held apart, so that they have a direction away
        from each other; 0 leaves them together, as ODD's reference does.
    """
    require(callable(objective), "objective must be a function", objective, "pass a function")
    one_of("features", features, FEATURES)
    if not callable(pool):
        one_of("pool", pool, POOLS)
    ids: Any = jnp.atleast_1d(jnp.asarray(protect, jnp.int32))
    number("the ids of protect", ids, at_least=0)
    return Pooled(
        strength=number("strength", strength),
        pooling=Pooling(
            number("jitter", jitter, at_least=0),
            features,
            pool,
            whole("top", top, at_least=0),
            bool(weighted),
        ),
        history=history,
        protect=ids if ids.size else None,
        objective=objective,
        sequential=bool(sequential),
    )


def odd(strength: Number = ODD, **options: Any) -> Pooled:
    """Orthogonal diverse diffusion (ODD, arXiv:2603.04893): each sample of a prompt is pushed
    along what the samples before it do not say.

    v_k is the pooled, normalised vector of sample k, r̂_k its residual after Gram-Schmidt on the
    samples before it; the gradient of Σ_k q_k ⟨v_k, r̂_k⟩ moves the logits. The first sample is
    never moved. The options are those of `pooled`; `sequential=True` is the reference's
    orthogonal projection. Its strength falls to 0 along a line: `sj.linear(16.0, 0.0)`.

    The reference leaves samples alone that say the same: from one prompt, at temperature 0, it
    does nothing at all. A little `jitter` holds them apart here; `jitter=0` is the reference.

    >>> import sake_jax as sj
    >>> guidance = sj.odd(sj.linear(8.0, 0.0), protect=[2])
    """
    return pooled(orthogonal, strength, **options)


def dpp(
    strength: Number = DPP,
    *,
    quality: float = 1.0,
    ridge: float = 1e-4,
    **options: Any,
) -> Pooled:
    """A determinantal point process over the samples of a prompt, as DiverseFlow has it.

    Maximises log det(L + εI) - log det(L + I + εI), the log-probability of choosing all of them,
    with L = V Vᵀ ∘ (1 + quality q qᵀ) over the pooled vectors of `pooled`, whose options it takes.

    >>> import sake_jax as sj
    >>> guidance = sj.dpp(sj.linear(2.0, 0.0), quality=2.0)

    Args:
      strength: see `pooled`.
      quality: how much sure samples count for more; 0: not at all.
      ridge: ε.
      **options: of `pooled`.
    """
    numbers = [
        number("quality", quality, at_least=0, schedule=False),
        number("ridge", ridge, above=0, schedule=False),
    ]
    return pooled(Determinantal(*numbers), strength, **options)
