"""What rules are made of."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Int

from sake_jax.checks import require
from sake_jax.core import Reveal
from sake_jax.node import Node
from sake_jax.typing import Key, Logits, PerPosition, WindowFlags, WindowTokens
from sake_jax.view import View


class Plain(Node):
    """A rule without numbers.

    >>> import sake_jax as sj
    >>> Plain(sj.reveal.confidence).function.__name__
    'confidence'
    """

    function: Reveal = struct.field(pytree_node=False)

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        return self.function(logits, drawn, view, key)


class Around(Node):
    """A rule around another, its field `rule`.

    >>> import sake_jax as sj
    >>> isinstance(sj.reveal.late(sj.reveal.confidence, [2]), Around)
    True
    """

    @property
    def couples_samples(self) -> bool:
        """Whether the rule inside looks at other samples of the prompt."""
        return getattr(getattr(self, "rule", None), "couples_samples", False)


def as_rule(rule: Any) -> Any:
    """A rule as a pytree: plain functions are wrapped, so that jit sees a choice, not a value.

    >>> import sake_jax as sj
    >>> type(as_rule(sj.reveal.random)).__name__, type(as_rule(sj.reveal.dynamic(0.9))).__name__
    ('Plain', 'Dynamic')
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
    return is_open & (ranks(-scores, is_open) < view.quota[:, None])


def ranks(scores: PerPosition, part: WindowFlags) -> Int[Array, "B W"]:
    """The place of each position in the order of ascending scores, of equals the leftmost first;
    positions that take no part come last."""
    order = jnp.argsort(jnp.where(part, scores, jnp.inf), axis=1, stable=True)
    return jnp.argsort(order, axis=1)


def open_here(view: View) -> WindowFlags:
    """The window's positions that may still be written."""
    return view.window(view.open & view.attend)


def uniform(key: Key, view: View) -> PerPosition:
    """One uniform number for each position, from one key for each row."""
    return jax.vmap(lambda own: jax.random.uniform(own, (view.width,)))(key.reshape(-1))
