"""Reveal rules: which of a step's draws are written to the canvas.

A rule is a function, or a pytree that can be called, `(logits, drawn, view, key) -> (B, W) bool`.
It may choose any position; closed ones are left alone by the step. Most choose `view.quota`
positions of each row.

>>> import sake_jax as sj
>>> bold = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=sj.reveal.threshold(0.9))
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import number, one_of, require, whole
from sake_jax.core import LOWEST, Reveal
from sake_jax.guidance.entropy import shannon_entropy
from sake_jax.guidance.select import largest
from sake_jax.node import Node
from sake_jax.noise_levels import STEPS, NoiseLevels, unmask_chance
from sake_jax.typing import Key, Logits, Number, PerPosition, WindowFlags, WindowTokens
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
    return highest(_uniform(key, view), view)


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
    return _uniform(key, view) < (1 - view.next_time / view.time)[:, None]


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
        return _uniform(key, view) < chance[:, None]


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


class Dynamic(Node):
    """See `dynamic`.

    >>> dynamic(0.85)
    Dynamic(value=0.85)
    """

    value: Number

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        sure = chance(logits, drawn)
        enough = _open(view) & (sure > view.number(self.value, 2))
        many = jnp.sum(enough, axis=1) >= view.quota
        return jnp.where(many[:, None], enough, highest(sure, view))


def dynamic(value: Number) -> Dynamic:
    """Every draw likelier than this, if they are as many as the plan wants; else as many of the
    likeliest as it wants (SDAR's low_confidence_dynamic, and LLaDA2's rule).

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=dynamic(0.85))
    """
    return Dynamic(number("dynamic", value, at_least=0, at_most=1))


class SubBlocks(Node):
    """See `sub_blocks`.

    >>> sub_blocks(confidence, 8).width
    8
    """

    rule: Any
    width: int = struct.field(pytree_node=False)

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        place = jnp.arange(view.width)[None, :] // self.width
        first = jnp.min(jnp.where(_open(view), place, view.width), axis=1, keepdims=True)
        within = view.open & view.put(jnp.zeros_like(view.open), place == first)
        many = jnp.sum(view.window(within & view.attend), axis=1)
        narrow = view.replace(open=within, quota=jnp.minimum(view.quota, many))
        return self.rule(logits, drawn, narrow, key)


def sub_blocks(rule: Reveal, width: int) -> SubBlocks:
    """A rule inside the leftmost `width` columns of a block that are not yet all written, then
    inside the next (Fast-dLLM v2's sub-blocks): they see the whole block, and are written in turn.

    >>> import sake_jax as sj
    >>> rule = sub_blocks(sj.reveal.threshold(0.9), 4)
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=rule)
    """
    return SubBlocks(as_rule(rule), whole("width", width))


class EditingRule(Node):
    """See `editing`.

    >>> editing(confidence, 0.9).value
    0.9
    """

    rule: Any
    value: Number

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        noise = view.tokens == view.mask_id
        chosen = self.rule(logits, drawn, view.replace(open=view.open & noise), key)
        other = ~view.window(noise) & (drawn != view.window(view.tokens))
        sure = chance(logits, drawn) > view.number(self.value, 2)
        return (chosen & view.window(noise)) | (other & sure)


def editing(rule: Reveal, value: Number) -> EditingRule:
    """A rule for the masks, and every other token in place of a written one that is likelier than
    `value` (LLaDA2.1's editing threshold). For `editing_process` and a plan with `edits`.

    >>> import sake_jax as sj
    >>> rule = editing(sj.reveal.dynamic(0.95), 0.9)
    """
    return EditingRule(as_rule(rule), number("editing", value, at_least=0, at_most=1))


class EntropyBound(Node):
    """See `entropy_bound`.

    >>> entropy_bound(0.1)
    EntropyBound(bound=0.1)
    """

    bound: Number

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        doubt = jnp.where(_open(view), shannon_entropy(logits), jnp.inf)
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


class Late(Node):
    """See `late`.

    >>> late(confidence, [2]).ids.tolist()
    [2]
    """

    rule: Any
    ids: Array

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        return self.rule(logits.at[:, :, self.ids].set(LOWEST), drawn, view, key)


def late(rule: Reveal, ids: Sequence[int]) -> Late:
    """A rule that finds these tokens unlikely, so that they are written last.

    LLaDA's `confidence_eos_eot_inf`: end tokens may be drawn, but do not win early by being
    easy. (Above temperature 0 its reference does this to the second token only.)

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=late(confidence, [2]))
    """
    require(len(ids) > 0, "late must name at least one token id", ids, "or leave it out")
    return Late(as_rule(rule), jnp.asarray(ids, jnp.int32))


class Plain(Node):
    """A rule without numbers.

    >>> Plain(confidence).function.__name__
    'confidence'
    """

    function: Reveal = struct.field(pytree_node=False)

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        return self.function(logits, drawn, view, key)


def as_rule(rule: Any) -> Any:
    """A rule as a pytree: plain functions are wrapped, so that jit sees a choice, not a value.

    >>> type(as_rule(confidence)).__name__, type(as_rule(threshold(0.9))).__name__
    ('Plain', 'Threshold')
    """
    rule_text = "a reveal rule must be a function (logits, drawn, view, key) -> kept"
    require(callable(rule), rule_text, rule, "see sake_jax.reveal for rules")
    return Plain(rule) if jax.tree_util.all_leaves([rule]) else rule


def chance(logits: Logits, drawn: WindowTokens) -> PerPosition:
    """The probability of the drawn tokens.

    >>> chance(jnp.log(jnp.array([[[0.75, 0.25]]])), jnp.array([[1]])).tolist()
    [[0.25]]
    """
    return jnp.take_along_axis(jax.nn.softmax(logits), drawn[..., None], axis=-1)[..., 0]


def highest(scores: PerPosition, view: View) -> WindowFlags:
    """The `view.quota` open positions of highest score; the leftmost among equals.

    >>> import sake_jax as sj
    >>> view = sj.blocks(length=3, steps=3).view(sj.canvas([[1]], 3, mask_id=9), jnp.int32(0))
    >>> highest(jnp.array([[0.2, 0.7, 0.1]]), view).tolist()
    [[False, True, False]]
    """
    open_here = _open(view)
    order = jnp.argsort(jnp.where(open_here, -scores, jnp.inf), axis=1, stable=True)
    rank: Array = jnp.argsort(order, axis=1)
    return open_here & (rank < view.quota[:, None])


def _open(view: View) -> WindowFlags:
    return view.window(view.open & view.attend)


def _uniform(key: Key, view: View) -> PerPosition:
    """One uniform number for each position, from one key for each row."""
    return jax.vmap(lambda own: jax.random.uniform(own, (view.width,)))(key.reshape(-1))
