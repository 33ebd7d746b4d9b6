"""Shaping: temperature and the filters that cut the tail of a distribution.

A token that is cut gets the logit `LOWEST`: finite, so that later differences of
logits stay numbers.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Float

from sake_jax.checks import number, require
from sake_jax.core import LOWEST, Guidance
from sake_jax.guidance.select import first_largest, threshold
from sake_jax.schedules import Schedule
from sake_jax.typing import Logits, Number


class Temperature(Guidance):
    value: Number

    def apply(self, logits, psi, state, ctx):
        value = ctx.number(self.value)
        scaled = jnp.clip(logits / jnp.where(value > 0, value, 1), LOWEST, -LOWEST)
        first = first_largest(logits)[..., None]
        coldest = jnp.where(jnp.arange(logits.shape[-1])[None, None, :] == first, 0, LOWEST)
        return jnp.where(value > 0, scaled, coldest), state, None


def temperature(value: Number) -> Temperature:
    """Divides logits by `value`; at 0 only the most likely token is left, exactly.

    >>> import sake_jax as sj
    >>> cooling = sj.temperature(sj.linear(1.0, 0.2))
    """
    return Temperature(number("temperature", value, at_least=0))


class Cooling(Guidance):
    hot: Number
    cold: Number

    def apply(self, logits, psi, state, ctx):
        hot, cold = ctx.number(self.hot, 1), ctx.number(self.cold, 1)
        value = cold + (hot - cold) * ctx.view.time
        return Temperature(value).apply(logits, psi, state, ctx)


def cooling(hot: Number, cold: Number) -> Cooling:
    """Temperature by the noise level t of a step: cold + (hot - cold) t.

    Where text is written block by block each block cools down, while a schedule runs over all
    steps of a run (DiffusionGemma's t_max and t_min).

    >>> import sake_jax as sj
    >>> draw = sj.cooling(0.8, 0.4)
    """
    hot = number("hot", hot, at_least=0)
    return Cooling(hot, number("cold", cold, at_least=0))


def is_greedy(guidance: Guidance) -> bool:
    """Whether it is temperature 0 for sure: a traced number or a schedule may be anything."""
    return (
        isinstance(guidance, Temperature)
        and isinstance(guidance.value, float)
        and (guidance.value == 0)
    )


class TopK(Guidance):
    count: Number

    def apply(self, logits, psi, state, ctx):
        ones = jnp.ones_like(logits)
        return _keep_heaviest(logits, ones, ctx.number(self.count, 2)), state, None


def top_k(count: Number) -> TopK:
    """Keeps the `count` most likely tokens, and all that tie with the last of them.

    >>> import sake_jax as sj
    >>> guidance = sj.chain(sj.top_k(50), sj.temperature(0.7))
    """
    return TopK(number("top_k's count", count, at_least=1))


class TopP(Guidance):
    mass: Number
    crossing: bool = struct.field(pytree_node=False, default=True)

    def apply(self, logits, psi, state, ctx):
        mass = ctx.number(self.mass)
        kept = _keep_heaviest(logits, jax.nn.softmax(logits), mass[..., 0], self.crossing)
        return jnp.where(mass >= 1, logits, kept), state, None


def top_p(mass: Number, *, crossing: bool = True) -> TopP:
    """Nucleus filter: keeps the fewest tokens whose probability reaches `mass`.

    The token that crosses `mass` is kept, and so is one that ties with it. Without `crossing`
    it goes, unless it is the likeliest of all, as in BD3LM's reference.

    >>> import sake_jax as sj
    >>> trusted = sj.chain(sj.top_p(0.95), sj.sake(1.0))
    """
    return TopP(number("top_p's mass", mass, above=0, at_most=1), crossing)


class MinP(Guidance):
    ratio: Number

    def apply(self, logits, psi, state, ctx):
        ratio = ctx.number(self.ratio)
        least = jnp.max(logits, axis=-1, keepdims=True) + jnp.log(jnp.maximum(ratio, 1e-37))
        kept = jnp.where(logits >= least, logits, LOWEST)
        return jnp.where(ratio > 0, kept, logits), state, None


def min_p(ratio: Number) -> MinP:
    """Keeps tokens at least `ratio` times as likely as the most likely one.

    >>> import sake_jax as sj
    >>> guidance = sj.chain(sj.min_p(0.05), sj.temperature(1.5))
    """
    return MinP(number("min_p's ratio", ratio, at_least=0, at_most=1))


class Forbid(Guidance):
    ids: Array | tuple

    def apply(self, logits, psi, state, ctx):
        return logits.at[:, :, jnp.asarray(self.ids)].set(LOWEST), state, None


def forbid(ids: Sequence[int] | Array) -> Forbid:
    """Never draws these token ids. If all tokens are forbidden, all are equally likely.

    Ids beyond the vocabulary have no effect.

    >>> import sake_jax as sj
    >>> guidance = sj.chain(sj.forbid([0, 16]), sj.sake(1.0))
    """
    ids = jnp.atleast_1d(jnp.asarray(ids, jnp.int32))
    require(ids.size > 0, "forbid must name at least one token id", ids, "or leave it out")
    number("the ids of forbid", ids, at_least=0)
    return Forbid(ids)


class Transform(Guidance):
    function: Callable[..., Logits] = struct.field(pytree_node=False)
    numbers: tuple = ()

    def apply(self, logits, psi, state, ctx):
        numbers = (ctx.number(n) if isinstance(n, Schedule) else n for n in self.numbers)
        return self.function(logits, ctx, *numbers), state, None


def transform(function: Callable[..., Logits], *numbers: Number) -> Transform:
    """A guidance from a plain function `(logits, ctx, *numbers) -> logits`.

    The numbers are leaves; a schedule reaches the function as its value, of shape (B, 1, 1).
    Define the function once at module level: one made anew at each call is a new program to the
    compiler.

        >>> import sake_jax as sj
        >>> def soften(logits, ctx, ceiling):  # measured from the largest: constants cancel
        ...     below = logits - jnp.max(logits, axis=-1, keepdims=True)
        ...     return ceiling * jnp.tanh(below / ceiling)
        >>> guidance = sj.chain(sj.transform(soften, 20.0), sj.sake(1.0))
    """
    require(callable(function), "transform must get a function", function, "pass a function")
    return Transform(function, numbers)


def _keep_heaviest(
    logits: Logits, weights: Logits, target: Float[Array, "#B #W"], crossing: bool = True
) -> Logits:
    """Keeps the fewest highest logits whose weights sum to `target`; maybe all but the last."""
    single = logits.astype(jnp.float32)
    target = jnp.broadcast_to(target, logits.shape[:-1])
    bar = threshold(single, weights, target)[..., None]
    top = jnp.max(single, axis=-1, keepdims=True)
    kept = single >= bar if crossing else (single > bar) | (single == top)
    return jnp.where(kept, logits, LOWEST)
