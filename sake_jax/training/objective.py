"""What is minimised, in nats per token: -log p of causal models, a bound on it of others."""

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.losses import (
    absorb,
    absorb_exactly,
    masked_terms,
    score_entropy,
    spread,
    surprise,
)
from sake_jax.models import (
    ModelConfig,
    NetworkDenoiser,
    aligned_features,
    log_scores,
    network_input,
)
from sake_jax.typing import Key, Params, Tokens

LEAST = 1e-3
"""The smallest chance of being masked, LLaDA's and MDLM's ε."""


def loss(
    config: ModelConfig,
    noise: str,
    params: Params,
    tokens: Tokens,
    key: Key,
    answer_start: int = 0,
) -> Array:
    """() the mean loss of a batch of examples.

    Args:
      config: the model.
      noise: see `Training.noise`.
      params: the model's.
      tokens: (B, L) clean text.
      key: of the noise.
      answer_start: the column from which on tokens are learned. Those before are a prompt: they
        are read as they are, and have no loss.
    """
    denoiser, answers = NetworkDenoiser(config.network), tokens[:, answer_start:]
    if config.network.causal:
        # Nothing predicts the first column.
        first = max(answer_start, 1)
        inputs = network_input(config, tokens)
        rows = aligned_features(config.network, params, inputs)[:, first:]
        return jnp.mean(surprise(denoiser.head(params, rows), tokens[:, first:]))
    if config.network.scores:
        return score_loss(config, params, tokens, key, answer_start)
    noisy, time = corrupt(config, noise, answers, key)
    seen = jnp.concatenate([tokens[:, :answer_start], noisy], axis=1)
    clean = tokens if config.network.block_size else None
    inputs = network_input(config, seen, clean=clean)
    rows = aligned_features(config.network, params, inputs)[:, answer_start:]
    logits = denoiser.head(params, rows)
    assert config.mask_id is not None, "recipes have one"
    options = {"predicts_mask": config.predicts_mask}
    return jnp.mean(masked_terms(logits, answers, noisy, time, config.mask_id, **options))


def score_loss(
    config: ModelConfig, params: Params, tokens: Tokens, key: Key, answer_start: int = 0
) -> Array:
    """SEDD's: score entropy times the rate of the noise, at times that are spread over the rows."""
    network, answers = config.network, tokens[:, answer_start:]
    assert config.mask_id is not None, "recipes have one"
    first, later = jax.random.split(key)
    batch = tokens.shape[0]
    time = LEAST + (1 - LEAST) * spread(jax.random.uniform(first), jnp.arange(batch), batch)
    sigma, rate = network.noise.total(time), network.noise.rate(time)
    keys, everything = jax.random.split(later, batch), jnp.ones(answers.shape, bool)
    noisy = absorb(keys, answers, everything, -jnp.expm1(-sigma), config.mask_id)
    seen = jnp.concatenate([tokens[:, :answer_start], noisy], axis=1)
    inputs = network_input(config, seen, sigma=sigma)
    rows = aligned_features(network, params, inputs)[:, answer_start:]
    logits = NetworkDenoiser(network).head(params, rows)
    scores = log_scores(logits, noisy, sigma, scaled=network.scale_by_sigma)
    terms = score_entropy(scores, answers, noisy, sigma, config.mask_id)
    return jnp.mean(rate[:, None] * terms)


def corrupt(config: ModelConfig, noise: str, tokens: Tokens, key: Key) -> tuple[Tokens, Array]:
    """Noisy tokens and, for every column, the chance with which it was masked.

    Times are spread evenly over all rows, or over all blocks of all rows (antithetic sampling): a
    batch then holds all noise levels, and its loss varies little.
    """
    assert config.mask_id is not None, "recipes have one"
    batch, columns = tokens.shape
    size = config.network.block_size or columns
    blocks = columns // size
    first, order, later = (jax.random.fold_in(key, at) for at in range(3))
    index = jnp.arange(batch * blocks)
    if blocks > 1:  # or a block's place would tell its time
        index = jax.random.permutation(order, index)
    u = spread(jax.random.uniform(first), index, batch * blocks).reshape(batch, blocks)
    u = jnp.repeat(u, size, axis=1)
    keys, everything = jax.random.split(later, batch), jnp.ones(tokens.shape, bool)
    if noise == "exact":
        count = jnp.floor(u * size).astype(jnp.int32) + 1
        block = jnp.arange(columns) // size
        noisy = absorb_exactly(keys, tokens, everything, count, block, config.mask_id)
        return noisy, count.astype(jnp.float32) / size
    time = LEAST + (1 - LEAST) * u if noise == "llada" else LEAST + (1 - 2 * LEAST) * u
    return absorb(keys, tokens, everything, time, config.mask_id), time
