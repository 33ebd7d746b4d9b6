"""Orders between confidence and chance."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import number, require
from sake_jax.node import Node
from sake_jax.precision import safe_log
from sake_jax.samplers.reveal.tools import chance, highest, open_here, uniform
from sake_jax.samplers.together import alike, invert, lattice
from sake_jax.typing import Key, Logits, Number, PerPosition, WindowFlags, WindowTokens
from sake_jax.view import View

Score = Callable[[Logits, WindowTokens], PerPosition]
"""`(logits, drawn) -> (B, W)`, above 0: how sure a position is."""


def gumbel_of(numbers: PerPosition) -> PerPosition:
    """Gumbel noise that is in the order of the uniform numbers."""
    return -jnp.log(-jnp.log(jnp.clip(numbers, 1e-30, 1 - 2.0**-24)))


class Tempered(Node):
    """See `tempered`.

    >>> tempered(0.5).tau
    0.5
    """

    tau: Number
    by: Score = struct.field(pytree_node=False, default=chance)
    systematic: bool = struct.field(pytree_node=False, default=False)

    @property
    def couples_samples(self) -> bool:
        return self.systematic

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        tau, sure = view.number(self.tau, 2), safe_log(self.by(logits, drawn))
        scores = sure + tau * gumbel_of(uniform(key, view))
        if self.systematic:
            first = self._first(sure, tau, view, key)
            scores = jnp.where(jnp.arange(view.width)[None] == first, jnp.inf, scores)
        return highest(scores, view)

    def _first(self, sure: PerPosition, tau: Array, view: View, key: Key) -> Array:
        """(B, 1) the first position, by numbers that lie evenly over samples that are the same.

        What is drawn without replacement after it is drawn from the others, as ever.
        """
        keys = jax.vmap(lambda own: jax.random.fold_in(own, 1))(key.reshape(-1))
        numbers = lattice(keys, view, 1, alike(view))[:, 0]
        scaled = sure / jnp.maximum(tau, 1e-6)
        chances = jax.nn.softmax(jnp.where(open_here(view), scaled, -jnp.inf), axis=1)
        nowhere = ~jnp.any(open_here(view), axis=1)[:, None]
        return invert(jnp.where(nowhere, 1.0, chances), numbers)[:, None]


def tempered(tau: Number, *, by: Score = chance, systematic: bool = False) -> Tempered:
    """Positions drawn without replacement in proportion to confidence^{1/τ} (TLC,
    arXiv:2604.09921): τ → 0 is `confidence`, τ → ∞ is `random`.

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=tempered(0.5))

    Args:
      tau: the temperature of the order; a number, or a schedule to begin at random and end sure.
      by: how sure a position is, a function `(logits, drawn) -> (B, W)` above 0; the drawn token's
        probability by default.
      systematic: draws the first position of a step with numbers that lie evenly over those
        samples of a prompt that have the same canvas: each sample's order is distributed as
        without, and together they have every order about as often as it is due.
    """
    require(callable(by), "by must be a function (logits, drawn) -> scores", by, "pass one")
    return Tempered(number("tau", tau, at_least=0), by, bool(systematic))


class TemperedThreshold(Node):
    """See `tempered_threshold`.

    >>> tempered_threshold(0.9, 0.5)
    TemperedThreshold(value=0.9, tau=0.5)
    """

    value: Number
    tau: Number

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        sure, value = chance(logits, drawn), view.number(self.value, 2)
        tau, numbers = view.number(self.tau, 2), uniform(key, view)
        logistic = safe_log(numbers) - jnp.log1p(-numbers)
        enough = safe_log(sure) + tau * logistic >= safe_log(value)
        # At tau 0 the comparison must not depend on how logarithms are rounded.
        enough = jnp.where(tau > 0, enough, sure >= value)
        scores = safe_log(sure) + tau * gumbel_of(numbers)
        return enough | highest(scores, view.replace(quota=jnp.ones_like(view.quota)))


def tempered_threshold(value: Number, tau: Number) -> TemperedThreshold:
    """Draws accepted at random around a threshold (TCT, arXiv:2604.09921), and always one.

    A draw of confidence c is accepted with the chance c^{1/τ} / (c^{1/τ} + value^{1/τ}): one half
    at the threshold. τ → 0 is `threshold`. The one that is always accepted is drawn as in
    `tempered`.

    >>> import sake_jax as sj
    >>> rule = tempered_threshold(0.9, 0.3)
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=rule)
    """
    value = number("tempered_threshold", value, at_least=0, at_most=1)
    return TemperedThreshold(value, number("tau", tau, at_least=0))
