"""How many positions a step writes: by what was drawn, not by the plan."""

import jax.numpy as jnp

from sake_jax.checks import number
from sake_jax.guidance.entropy import shannon_entropy
from sake_jax.node import Node
from sake_jax.samplers.reveal.tools import chance, highest, open_here
from sake_jax.typing import Key, Logits, Number, WindowFlags, WindowTokens
from sake_jax.view import View


def everything(logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
    """All draws: the process itself decides what stays noise (MDLM, UDLM).

    >>> import sake_jax as sj
    >>> sj.ancestral(sj.testing.ToyDenoiser(), length=8, steps=4).reveal.function.__name__
    'everything'
    """
    return jnp.ones(drawn.shape, bool)


class Threshold(Node):
    """See `threshold`.

    >>> threshold(0.9)
    Threshold(value=0.9)
    """

    value: Number

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        sure = chance(logits, drawn)
        enough = sure >= view.number(self.value, 2)
        return enough | highest(sure, view.replace(quota=jnp.ones_like(view.quota)))


def threshold(value: Number) -> Threshold:
    """Every draw at least this likely, and always the likeliest (Fast-dLLM's parallel decoding).

    >>> bold = threshold(0.9)
    """
    return Threshold(number("threshold", value, at_least=0, at_most=1))


class Hierarchical(Node):
    """See `hierarchical`.

    >>> hierarchical(0.9, low=0.5)
    Hierarchical(value=0.9, low=0.5)
    """

    value: Number
    low: Number

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        sure, is_open = chance(logits, drawn), open_here(view)
        # A gap is numbered by the written positions before it.
        gap, place = jnp.cumsum(~is_open, axis=1), jnp.arange(sure.shape[1])
        ahead = sure[:, None, :] > sure[:, :, None]  # the other one, of columns (i, other)
        ahead |= (sure[:, None, :] == sure[:, :, None]) & (place[None, None] < place[None, :, None])
        same = (gap[:, :, None] == gap[:, None, :]) & is_open[:, None, :]
        best = is_open & ~jnp.any(same & ahead, axis=2)
        enough = best & (sure > view.number(self.low, 2))
        return enough | threshold(self.value)(logits, drawn, view, key)


def hierarchical(value: Number, *, low: Number = 0.5) -> Hierarchical:
    """`threshold(value)`, and of each gap between written positions its likeliest draw, if that is
    likelier than `low`: far from each other, they depend less on each other (dInfer's hierarchical
    decoding). With a `low` of `value` or more it is `threshold(value)`.

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=hierarchical(0.9, low=0.4))
    """
    high = number("hierarchical", value, at_least=0, at_most=1)
    return Hierarchical(high, number("low", low, at_least=0, at_most=1))


class Dynamic(Node):
    """See `dynamic`.

    >>> dynamic(0.85)
    Dynamic(value=0.85)
    """

    value: Number

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        sure = chance(logits, drawn)
        enough = open_here(view) & (sure > view.number(self.value, 2))
        many = jnp.sum(enough, axis=1) >= view.quota
        return jnp.where(many[:, None], enough, highest(sure, view))


def dynamic(value: Number) -> Dynamic:
    """Every draw likelier than this, if they are as many as the plan wants; else as many of the
    likeliest as it wants (SDAR's low_confidence_dynamic, and LLaDA2's rule).

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=dynamic(0.85))
    """
    return Dynamic(number("dynamic", value, at_least=0, at_most=1))


class EntropyBound(Node):
    """See `entropy_bound`.

    >>> entropy_bound(0.1)
    EntropyBound(bound=0.1)
    """

    bound: Number

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        doubt = jnp.where(open_here(view), shannon_entropy(logits), jnp.inf)
        order = jnp.argsort(doubt, axis=1)
        ordered = jnp.take_along_axis(doubt, order, axis=1)
        # The error of drawing them independently is at most the sum of all but the largest.
        error = jnp.cumsum(jnp.where(jnp.isinf(ordered), 0, ordered), axis=1) - ordered
        count = jnp.sum(error <= view.number(self.bound, 2), axis=1)
        return highest(-doubt, view.replace(quota=jnp.maximum(count, 1)))


def entropy_bound(bound: Number) -> EntropyBound:
    """As many of the surest positions as keep their joint error below `bound` nats.

    The entropies of the chosen positions, the largest left out, sum to at most `bound`
    (EB-Sampler, Ben-Hamu et al. 2025). 0 writes one position a step.

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=entropy_bound(0.1))
    """
    return EntropyBound(number("entropy_bound", bound, at_least=0))
