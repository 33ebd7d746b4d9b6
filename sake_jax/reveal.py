"""Reveal rules: which of a step's draws are written to the canvas.

A rule is a function `(logits, drawn, view, key) -> (B, W) bool`. It may choose any
position; closed ones are left alone by the step. Rows choose `view.quota` positions each.
"""

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.core import View
from sake_jax.typing import Key, Logits, PerPosition, WindowFlags, WindowTokens


def confidence(logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
    """The draws that the distribution finds most likely (LLaDA's low-confidence remasking)."""
    chances = jax.nn.softmax(logits)
    return highest(jnp.take_along_axis(chances, drawn[..., None], axis=-1)[..., 0], view)


def random(logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
    """Positions in random order, independent of what was drawn."""
    keys = key.reshape(-1)
    return highest(jax.vmap(lambda k: jax.random.uniform(k, (view.width,)))(keys), view)


def everything(logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
    """All draws: the process itself decides what stays noise (MDLM, UDLM)."""
    return jnp.ones(drawn.shape, bool)


def highest(scores: PerPosition, view: View) -> WindowFlags:
    """The `view.quota` open positions of highest score; the leftmost among equals."""
    open_here = view.window(view.open & view.attend)
    order = jnp.argsort(jnp.where(open_here, -scores, jnp.inf), axis=1, stable=True)
    rank: Array = jnp.argsort(order, axis=1)
    return open_here & (rank < view.quota[:, None])
