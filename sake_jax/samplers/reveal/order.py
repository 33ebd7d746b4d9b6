"""Which positions come first: as many as the plan wants."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import one_of, require
from sake_jax.guidance.entropy import shannon_entropy
from sake_jax.guidance.select import largest
from sake_jax.node import Node
from sake_jax.noise_levels import STEPS, NoiseLevels, unmask_chance
from sake_jax.samplers.reveal.tools import chance, highest, uniform
from sake_jax.typing import Key, Logits, WindowFlags, WindowTokens
from sake_jax.view import View


def confidence(logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
    """The draws that the distribution finds most likely (LLaDA's low-confidence remasking).

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=confidence)
    """
    return highest(chance(logits, drawn), view)


def margin(logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
    """Where the likeliest token leads the second by most (Dream's topk_margin).

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=margin)
    """
    top, _ = largest(jax.nn.softmax(logits), 2)
    return highest(top[..., 0] - top[..., 1], view)


def low_entropy(logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
    """Where the distribution has least entropy (Dream's `entropy` order).

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=low_entropy)
    """
    return highest(-shannon_entropy(logits), view)


def random(logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
    """Positions in random order, independent of what was drawn.

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=random)
    """
    return highest(uniform(key, view), view)


def leftmost(logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
    """Positions from left to right (SDAR's sequential order).

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=leftmost)
    """
    return highest(jnp.zeros(drawn.shape), view)  # of equals, the leftmost


def coin(logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
    """Each position by itself with the chance 1 - s/t that its time has come (Dream's origin).

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=coin)
    """
    return uniform(key, view) < (1 - view.next_time / view.time)[:, None]


class Coin(Node):
    """See `coin_of`.

    >>> import sake_jax as sj
    >>> coin_of(sj.Geometric(), "euler").step
    'euler'
    """

    noise: NoiseLevels = struct.field(pytree_node=False)
    step: str = struct.field(pytree_node=False, default="tweedie")

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        chance = unmask_chance(self.noise, self.step, view.time, view.next_time)
        return uniform(key, view) < chance[:, None]


def coin_of(noise: NoiseLevels, step: str = "tweedie") -> Coin:
    """As `coin`, with the chance that masked diffusion of this noise has (RADD with filters).

    >>> import sake_jax as sj
    >>> plan, rule = sj.descent(8, 8, final="draw", extra=False), coin_of(sj.Geometric())
    >>> sampler = sj.sampler(sj.testing.ToyDenoiser(), plan, reveal=rule)
    """
    return Coin(noise, one_of("step", step, STEPS))


class Ordered(Node):
    """See `ordered`.

    >>> ordered([2, 0, 1]).order.tolist()
    [2, 0, 1]
    """

    order: Array

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        rank = jnp.argsort(self.order)
        columns = view.window_start - view.canvas.generation_start + jnp.arange(view.width)
        rule = "the order must name every column that is written"
        length = view.tokens.shape[1] - view.canvas.generation_start
        require(rank.size == length, rule, rank.size, f"name {length}")
        scores = -rank[columns].astype(jnp.float32)
        return highest(jnp.broadcast_to(scores[None], drawn.shape), view)


def ordered(order: Sequence[int]) -> Ordered:
    """Columns in a given order, counted from the first that is written (RADD's OrderedSampler).

    >>> import sake_jax as sj
    >>> backward = ordered(range(7, -1, -1))
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=backward)
    """
    columns = [int(column) for column in order]
    rule, remedy = "an order must name every column once", "pass a permutation of 0 .. length - 1"
    require(sorted(columns) == list(range(len(columns))), rule, columns, remedy)
    return Ordered(jnp.asarray(columns, jnp.int32))
