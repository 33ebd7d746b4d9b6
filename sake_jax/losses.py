"""What diffusion language models are trained with: noise for a text, and the loss of each token.

Pure functions for inside jit and grad; `sake_jax.likelihood` scores texts with them. A time t is
the chance that noise has replaced a token: α = 1 - t.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from sake_jax.core import LOWEST
from sake_jax.precision import precise
from sake_jax.typing import Flags, Key, Logits, PerPosition, PerRow, Tokens, WindowTokens

Times = PerRow | Float[Array, "B W"]
"""A time for each row, or for each column, as in block diffusion."""


def spread(start: Array, index: Array, count: Array | int) -> Array:
    """The `index`-th of `count` numbers spread evenly over [0, 1) from a random start.

    Each is uniform, and together they leave no gap: times for a batch whose mean varies little.
    """
    return (start + jnp.asarray(index, start.dtype) / jnp.asarray(count, start.dtype)) % 1


def absorb(keys: Key, clean: Tokens, open: Flags, time: Times, mask_id: Array | int) -> Tokens:
    """Masks every open token with chance t; one key per row."""
    moved = per_column(jax.random.uniform, keys, clean.shape[1]) < _columns(time)
    return jnp.where(open & moved, mask_id, clean)


def absorb_exactly(
    keys: Key,
    clean: Tokens,
    open: Flags,
    count: Tokens,
    block: Int[Array, "L"],
    mask_id: Array | int,
) -> Tokens:
    """Masks exactly `count` of the open tokens of each block; one key per row.

    Args:
      count: (B, L), the same all over a block.
      block: which block a column belongs to, counted from the left; zeros where it is one.
    """
    # 32 random bits: two equal ones would favour the left.
    ticket = per_column(jax.random.bits, keys, clean.shape[1])
    column = jnp.broadcast_to(jnp.arange(clean.shape[1]), clean.shape)
    # Blocks stay in place; within each, open tokens go first, in the order of their tickets.
    group = 2 * block[None] + (~open).astype(block.dtype)
    *_, order = jax.lax.sort((group, ticket, column), dimension=1, num_keys=2)
    rank = jnp.argsort(order, axis=1) - jnp.searchsorted(block, block)[None]
    return jnp.where(open & (rank < count), mask_id, clean)


def scatter(keys: Key, clean: Tokens, open: Flags, time: Times, vocabulary: Array | int) -> Tokens:
    """Puts any token in place of every open one with chance t; one key per row."""
    chance, choice = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    moved = per_column(jax.random.uniform, chance, clean.shape[1]) < _columns(time)
    any_token = functools.partial(jax.random.randint, shape=(), minval=0, maxval=vocabulary)
    drawn = per_column(any_token, choice, clean.shape[1]).astype(clean.dtype)
    return jnp.where(open & moved, drawn, clean)


def surprise(logits: Logits, clean: WindowTokens) -> PerPosition:
    """-log p(clean) in nats; for uniform noise also the reconstruction term, at t = 0."""
    logits = precise(logits)
    own = jnp.take_along_axis(logits, clean[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - own


def masked_terms(
    logits: Logits,
    clean: WindowTokens,
    noisy: WindowTokens,
    time: Times,
    mask_id: Array | int,
    *,
    predicts_mask: bool = True,
) -> PerPosition:
    """-log p(clean) / t at masked positions, 0 elsewhere (MDLM, LLaDA, Dream, BD3LM).

    Without `predicts_mask` the mask token is no candidate (MDLM's and BD3LM's SUBS); see
    `ModelConfig.predicts_mask`.
    """
    if not predicts_mask:
        is_mask = jnp.arange(logits.shape[-1]) == mask_id
        logits = jnp.where(is_mask[None, None], LOWEST, logits)
    hidden = noisy == mask_id
    # 1 where nothing is divided: t = 0 masks nothing, and must not make gradients infinite.
    return jnp.where(hidden, surprise(logits, clean), 0) / jnp.where(hidden, _columns(time), 1)


def uniform_terms(
    logits: Logits, clean: WindowTokens, noisy: WindowTokens, time: Times
) -> PerPosition:
    """The diffusion term of uniform noise (UDLM, Schiff et al. 2024, arXiv 2412.10193).

    With x̄ = αV x + (1 - α) of the clean token x, x̄_θ of its prediction, and noisy token z,

        1/(αV) Σⱼ d(x̄ⱼ/x̄_z, x̄_θⱼ/x̄_θz),    d(r, s) = r log(r/s) - r + s ≥ 0,

    which is the paper's difference of two large sums, written as a sum of small terms. The
    reference computes it for α = 1 - t, but draws noise with chance 0.999 t.
    """
    size, t = logits.shape[-1], _columns(time)[..., None]

    def ratio(x: Array) -> Array:
        bar = (1 - t) * size * x + t
        return bar / jnp.take_along_axis(bar, noisy[..., None], axis=-1)

    predicted = jax.nn.softmax(precise(logits))
    true = jax.nn.one_hot(clean, size, dtype=predicted.dtype)
    distance = jax.scipy.special.kl_div(ratio(true), ratio(predicted))
    return jnp.sum(distance, axis=-1) / (size * (1 - t[..., 0]))


def per_column(draw: Callable[[Array], Array], keys: Key, columns: int) -> Array:
    """(B, L) a draw from a key for every column, so that padding changes none of them."""
    one = lambda key, column: draw(jax.random.fold_in(key, column))  # noqa: E731
    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, jnp.arange(columns))


def _columns(time: Times) -> Array:
    return time[:, None] if time.ndim == 1 else time
