"""Rules around other rules."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import number, require, whole
from sake_jax.core import LOWEST, Reveal
from sake_jax.samplers.reveal.tools import Around, as_rule, chance, open_here
from sake_jax.typing import Key, Logits, Number, WindowFlags, WindowTokens
from sake_jax.view import View


class SubBlocks(Around):
    """See `sub_blocks`.

    >>> import sake_jax as sj
    >>> sub_blocks(sj.reveal.confidence, 8).width
    8
    """

    rule: Any
    width: int = struct.field(pytree_node=False)

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        place = jnp.arange(view.width)[None, :] // self.width
        first = jnp.min(jnp.where(open_here(view), place, view.width), axis=1, keepdims=True)
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


class EditingRule(Around):
    """See `editing`.

    >>> import sake_jax as sj
    >>> editing(sj.reveal.confidence, 0.9).value
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


class Late(Around):
    """See `late`.

    >>> import sake_jax as sj
    >>> late(sj.reveal.confidence, [2]).ids.tolist()
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
    >>> rule = late(sj.reveal.confidence, [2])
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=rule)
    """
    require(len(ids) > 0, "late must name at least one token id", ids, "or leave it out")
    return Late(as_rule(rule), jnp.asarray(ids, jnp.int32))
