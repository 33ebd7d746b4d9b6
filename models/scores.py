"""Concrete scores: what SEDD's networks predict in place of clean tokens."""

import jax.numpy as jnp
from jax import Array

from sake_jax.noise_levels import log_expm1
from sake_jax.typing import Logits, WindowTokens


def log_scores(logits: Logits, tokens: WindowTokens, sigma: Array, *, scaled: bool) -> Logits:
    """log s(y) = log p_σ(y) - log p_σ(x) of every token y, where x stands now; 0 for x itself.

    >>> tokens, sigma = jnp.array([[2]]), jnp.array([jnp.log(3.0)])  # e^σ - 1 = 2
    >>> log_scores(jnp.log(jnp.array([[[4.0, 8.0, 1.0]]])), tokens, sigma, scaled=True)[0, 0, 2]
    Array(0., dtype=float32)

    Args:
      logits: (B, W, V) what the head gives.
      tokens: (B, W) the tokens that stand there.
      sigma: the total noise of each row, or (B, W) of each column.
      scaled: whether the network leaves out what every score of masked tokens has: 1 / (e^σ - 1),
        and an average of 1 / (V - 1) (SEDD's scale_by_sigma).
    """
    size = logits.shape[-1]
    if scaled:
        sigma = sigma.reshape(sigma.shape[0], -1, 1)
        logits = logits - (log_expm1(sigma) + jnp.log(jnp.float32(size - 1)))
    own = jnp.arange(size)[None, None, :] == tokens[..., None]
    return jnp.where(own, 0, logits)
