"""Random numbers that belong to a position, not to a batch.

Every draw's key is folded from (seed, prompt, sample, step, position counted from the
first generated token). So a row's tokens do not depend on the batch it is in, on its
padding, or on how the batch is spread over devices.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.node import Node
from sake_jax.precision import safe_log
from sake_jax.samplers.together import alike, invert, lattice
from sake_jax.typing import Key, Logits, WindowFlags, WindowTokens
from sake_jax.view import Canvas, View

Noise = Callable[[Array, View, int], Logits]
"""`(one key per row, view, V) -> (B, W, V)` Gumbel noise; replace it to replay recorded noise.

In its place may stand a `TokenDraw`, such as `systematic()`."""


@runtime_checkable
class TokenDraw(Protocol):
    """Draws tokens itself, where noise on the logits is not enough.

    >>> isinstance(systematic(), TokenDraw), isinstance(gumbel, TokenDraw)
    (True, False)
    """

    def draw(self, log_q: Logits, keys: Array, view: View, foreseen: WindowFlags) -> WindowTokens:
        """The token of each position of the window, from one key for each row. `foreseen` are the
        positions that would be written if the likeliest tokens were drawn."""
        ...


def row_keys(key: Key, canvas: Canvas, step: Array) -> Array:
    """(B,) one key for each row at this step."""

    def fold(prompt, sample):
        return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, prompt), sample), step)

    return jax.vmap(fold)(canvas.prompt_id, canvas.sample_id)


Tokens = Callable[[Array, View, int], WindowTokens]
"""`(one key per row, view, V) -> (B, W)` tokens that are noise; replace it to replay others."""


def uniform_tokens(keys: Array, view: View, vocabulary: int) -> WindowTokens:
    """Any token at any of the window's positions.

    >>> import sake_jax as sj
    >>> keys = jax.random.split(jax.random.key(0), 4)  # one for each row
    >>> uniform_tokens(keys, sj.testing.toy_view(0), 17).shape  # rows, window
    (4, 6)
    """
    columns = view.window_start - view.canvas.generation_start + jnp.arange(view.width)

    def position(key, column):
        return jax.random.randint(jax.random.fold_in(key, column), (), 0, vocabulary)

    return jax.vmap(jax.vmap(position, (None, 0)), (0, None))(keys, columns)


def first_tokens(key: Key, canvas: Canvas, vocabulary: int, prior: Array | None = None) -> Array:
    """(B, L) where a process without a mask token begins: any token at any open position, by the
    chances of the `prior`, (V,), if the process has one."""
    columns = jnp.arange(canvas.tokens.shape[1]) - canvas.generation_start

    def position(key, column):
        own = jax.random.fold_in(key, column)
        if prior is None:
            return jax.random.randint(own, (), 0, vocabulary)
        return jax.random.categorical(own, safe_log(prior))

    keys = row_keys(key, canvas, jnp.int32(-1))  # keys of the steps begin at 0
    drawn = jax.vmap(jax.vmap(position, (None, 0)), (0, None))(keys, columns)
    return jnp.where(canvas.open, drawn.astype(canvas.tokens.dtype), canvas.tokens)


def still(keys: Array, view: View, vocabulary: int) -> Logits:
    """No noise: the likeliest token is drawn.

    >>> import sake_jax as sj
    >>> greedy = sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(8, 8), noise=sj.still)
    """
    return jnp.zeros((keys.shape[0], view.width, vocabulary), jnp.float32)


def gumbel(keys: Array, view: View, vocabulary: int) -> Logits:
    """Standard Gumbel noise for every window position and token.

    mode="high": the default resolves 2⁻²³ of a uniform, so that its largest values, the
    ones that decide a draw from a large vocabulary, would repeat and end near 16.

    >>> import sake_jax as sj
    >>> keys = jax.random.split(jax.random.key(0), 4)  # one for each row
    >>> gumbel(keys, sj.testing.toy_view(0), 17).shape  # rows, window, tokens
    (4, 6, 17)
    """
    columns = view.window_start - view.canvas.generation_start + jnp.arange(view.width)

    def position(key, column):
        own = jax.random.fold_in(key, column)
        return jax.random.gumbel(own, (vocabulary,), jnp.float32, mode="high")

    return jax.vmap(jax.vmap(position, (None, 0)), (0, None))(keys, columns)


class Systematic(Node):
    """See `systematic`.

    >>> systematic().couples_samples
    True
    """

    @property
    def couples_samples(self) -> bool:
        return True

    def draw(self, log_q: Logits, keys: Array, view: View, foreseen: WindowFlags) -> WindowTokens:
        """The token of each position that its uniform number stands for."""
        numbers = lattice(keys, view, view.width, alike(view, foreseen))
        return invert(jax.nn.softmax(log_q), numbers)


def systematic() -> Systematic:
    """Draws that the samples of a prompt share out among them; each by itself is drawn as ever.

    Of m samples with the same canvas, which are about to write at the same positions, the k-th
    draws a token by the number (u + π(k)/m) mod 1, with u uniform and π a random order, both anew
    for each step and position: a token of probability p is drawn by m p of them, rounded up or
    down, where independent draws would miss it with the chance (1 - p)^m. A sample's own number is
    uniform and independent of all that it was given before, so that its tokens have exactly the
    distribution that they have with `gumbel`: what one sample solves on average stays the same.

    Goes in the place of `noise`. Tokens less likely than about 1e-7 are not resolved.

    >>> import sake_jax as sj
    >>> shared = sj.masked(sj.testing.ToyDenoiser(), length=8, noise=sj.systematic())
    >>> shared.couples_samples  # so `generate` keeps the samples of a prompt together
    True
    """
    return Systematic()
