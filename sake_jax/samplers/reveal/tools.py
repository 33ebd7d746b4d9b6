"""What rules are made of."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import require
from sake_jax.core import Reveal
from sake_jax.node import Node
from sake_jax.typing import Key, Logits, PerPosition, WindowFlags, WindowTokens
from sake_jax.view import View


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
    is_open = open_here(view)
    order = jnp.argsort(jnp.where(is_open, -scores, jnp.inf), axis=1, stable=True)
    rank: Array = jnp.argsort(order, axis=1)
    return is_open & (rank < view.quota[:, None])


def open_here(view: View) -> WindowFlags:
    """The window's positions that may still be written."""
    return view.window(view.open & view.attend)


def uniform(key: Key, view: View) -> PerPosition:
    """One uniform number for each position, from one key for each row."""
    return jax.vmap(lambda own: jax.random.uniform(own, (view.width,)))(key.reshape(-1))
