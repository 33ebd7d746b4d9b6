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
from sake_jax.matrices import TransitionMatrices
from sake_jax.noise_levels import NoiseLevels, log_expm1
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


def denoising_terms(
    logits: Logits,
    clean: WindowTokens,
    noisy: WindowTokens,
    time: PerRow,
    mask_id: Array | int,
    noise: NoiseLevels,
) -> PerPosition:
    """`masked_terms` at a time of any schedule: σ'(t) / (e^σ(t) - 1) in place of 1/t (RADD).

    Of log-linear noise both are the same. Summed over a text and averaged over t this is RADD's
    t_DCE, but for log(e^σ - 1) in its logarithm, which no parameter can change. Its lambda_DCE and
    k_DCE are `masked_terms` with t = λ and t = k / n, its t_DSE is `score_entropy` times σ'(t).
    """
    weight = noise.rate(time) / jnp.expm1(noise.total(time))
    return masked_terms(logits, clean, noisy, 1 / weight, mask_id, predicts_mask=False)


def score_entropy(
    log_scores: Logits,
    clean: WindowTokens,
    noisy: WindowTokens,
    sigma: PerRow | Float[Array, "B W"],
    mask_id: Array | int | None = None,
) -> PerPosition:
    """How far scores are from the true ratios r(y) = p_σ(y | clean) / p_σ(noisy | clean) (SEDD).

        Σ_y w d(r(y), s(y)),    d(r, s) = r log(r/s) - r + s ≥ 0,

    over all y but the noisy token itself, whose score is 1. With a mask token noise is absorbing:
    w = 1, the sum is over clean tokens, and positions that are not masked have no loss. Without
    one it is uniform, and w = 1/V. Summed over a text and times σ'(t), its mean over t is SEDD's
    training loss and a bound on -log p (Lou et al. 2024, arXiv 2310.16834).

    Args:
      log_scores: (B, W, V) see `sake_jax.models.log_scores`.
      clean: (B, W) the true tokens.
      noisy: (B, W) what stands in their place.
      sigma: the total noise of each row, or of each column.
      mask_id: of absorbing noise; None for uniform noise.
    """
    size, sigma = log_scores.shape[-1], _columns(sigma)[..., None]
    log_scores = precise(log_scores)
    column = jnp.arange(size)[None, None, :]
    is_clean, is_noisy = column == clean[..., None], column == noisy[..., None]
    if mask_id is not None:
        log_ratio = -log_expm1(sigma)
        ratio = jnp.where(is_clean, jnp.exp(log_ratio), 0)
        counted = (column != mask_id) & (noisy == mask_id)[..., None]
        weight = 1.0
    else:
        # A token is still the clean one 1 + V / (e^σ - 1) times as often as any other.
        log_ratio = jnp.log1p(size * jnp.exp(-log_expm1(sigma)))
        moved = (clean != noisy)[..., None]
        log_ratio = jnp.where(moved, jnp.where(is_clean, log_ratio, 0), -log_ratio)
        ratio, counted, weight = jnp.exp(log_ratio), ~is_noisy, 1 / size
    # What is not counted is set to 1 before logarithms, so that gradients stay finite.
    log_ratio, log_scores = (jnp.where(counted, part, 0) for part in (log_ratio, log_scores))
    distance = ratio * (log_ratio - log_scores) - ratio + jnp.exp(log_scores)
    return weight * jnp.sum(jnp.where(counted, distance, 0), axis=-1)


def transition_terms(
    matrices: TransitionMatrices,
    logits: Logits,
    clean: WindowTokens,
    noisy: WindowTokens,
    time: PerRow,
    *,
    eps: float = 0.0,
) -> PerPosition:
    """One step's part of the bound on -log p by transition matrices (D3PM).

    KL(q(x_s | x_t, clean) || p(x_s | x_t)) in nats from step t to the one before, and -log p(clean)
    of the first step. Times T and averaged over t = 1/T, 2/T .. 1, and with `prior_terms` added, it
    is the bound. D3PM's hybrid loss adds 0.01 `surprise(logits, clean)`.

    Args:
      matrices: of the noise.
      logits: (B, W, V) of the clean tokens.
      clean: (B, W) the true tokens.
      noisy: (B, W) what stands in their place.
      time: (B,) multiples of 1/T.
      eps: see `TransitionMatrices.log_posterior`; the reference has 1e-6.
    """
    earlier = time - 1 / matrices.count
    size, chances = logits.shape[-1], jax.nn.softmax(precise(logits))
    true = jax.nn.one_hot(clean, size, dtype=chances.dtype)
    true, predicted = (
        jax.nn.log_softmax(matrices.log_posterior(start, noisy, time, earlier, eps))
        for start in (true, chances)
    )
    share = jnp.exp(true)
    # An exact posterior has tokens without any chance; the prediction gives them none either.
    kl = jnp.sum(jnp.where(share > 0, share * (true - predicted), 0), axis=-1)
    first = (matrices.index(earlier) == 0)[:, None]
    return jnp.where(first, surprise(logits, clean), kl)


def prior_terms(matrices: TransitionMatrices, clean: WindowTokens) -> PerPosition:
    """KL(q(x_T | clean) || where samples begin): what the noise leaves of a text, in nats."""
    last = matrices.cumulative[-1][clean]
    return jnp.sum(jax.scipy.special.kl_div(last, matrices.prior[None, None]), axis=-1)


def per_column(draw: Callable[[Array], Array], keys: Key, columns: int) -> Array:
    """(B, L) a draw from a key for every column, so that padding changes none of them."""
    one = lambda key, column: draw(jax.random.fold_in(key, column))  # noqa: E731
    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, jnp.arange(columns))


def _columns(time: Times) -> Array:
    return time[:, None] if time.ndim == 1 else time
