"""A tiny masked-diffusion language model of arithmetic series, to measure diversity on.

The data. A series is x_k = a + k d for k = 0..7, with every x_k in 0..127 and d != 0, so that
|d| <= 18: there are 2,214 of them. They are put in a fixed random order, and the one of rank
r = 0, 1, ... is drawn with weight 1 / (r + SHIFT): a few are common and most are rare, so that a
sampler at a low temperature collapses on the common ones. Token 128 is the mask.

The model. A bidirectional pre-norm transformer shaped like LLaDA (RMSNorm, SwiGLU three times as
wide as the stream, no biases, separate input and output tables), but with learned positions:
rotary ones alone cannot tell apart the positions of an all-mask sequence.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sake_jax.checks import require, whole
from sake_jax.typing import Features, Key, Tokens

NUMBERS, LENGTH, SHIFT = 128, 8, 10.0
MASK_ID = NUMBERS

_PAIRS = [(a, d) for a in range(NUMBERS) for d in range(-NUMBERS, NUMBERS) if d != 0]
_INSIDE = [(a, d) for a, d in _PAIRS if 0 <= a + (LENGTH - 1) * d < NUMBERS]
_STARTS, _STEPS = np.random.default_rng(0).permutation(_INSIDE).astype(np.int32).T[..., None]
SERIES = _STARTS + _STEPS * np.arange(LENGTH, dtype=np.int32)[None, :]
"""(2214, LENGTH) all of them, the common ones first."""
WEIGHTS = 1 / (np.arange(len(SERIES)) + SHIFT)
WEIGHTS /= WEIGHTS.sum()

Weights = dict[str, Array]
"""The model's parameters by name, layers stacked along the first axis."""


@dataclass(frozen=True)
class Config:
    """The shape of the model; `tied` makes the output table the input table."""

    vocab: int = MASK_ID + 1
    length: int = LENGTH
    width: int = 128
    layers: int = 3
    heads: int = 4
    tied: bool = False

    def __post_init__(self) -> None:
        whole("layers", self.layers)
        rule = "width must be a multiple of heads"
        require(self.width % self.heads == 0, rule, (self.width, self.heads), "change one")


def draw(key: Key, count: int) -> Tokens:
    """(count, LENGTH) independent series from the data distribution."""
    chances = jnp.asarray(WEIGHTS, jnp.float32)
    return jax.random.choice(key, jnp.asarray(SERIES), (count,), p=chances)


def is_series(tokens: Tokens) -> Array:
    """(B,) whether each row is one of the series."""
    steps = jnp.diff(tokens, axis=-1)
    constant = (steps == steps[:, :1]).all(-1) & (steps[:, 0] != 0)
    return constant & ((tokens >= 0) & (tokens < NUMBERS)).all(-1)


def quality(tokens: Array | np.ndarray) -> tuple[float, float]:
    """Validity, the share of rows that are series, and the share of distinct ones among these."""
    valid = np.asarray(is_series(jnp.asarray(tokens)))
    found = np.asarray(tokens)[valid]
    return float(valid.mean()), len(np.unique(found, axis=0)) / max(len(found), 1)


def init(config: Config, key: Key) -> Weights:
    """Fresh parameters."""
    d, n = config.width, config.layers
    shapes = {
        "input": ((config.vocab, d), 0.02),
        "output": ((config.vocab, d), 0.02),
        "positions": ((config.length, d), 0.02),
        "qkv": ((n, d, 3 * d), d**-0.5),
        "mix": ((n, d, d), (2 * n * d) ** -0.5),
        "up": ((n, d, 6 * d), d**-0.5),
        "down": ((n, 3 * d, d), (2 * n * 3 * d) ** -0.5),
    }
    keys = jax.random.split(key, len(shapes))
    drawn = {
        name: deviation * jax.random.normal(own, shape, jnp.float32)
        for (name, (shape, deviation)), own in zip(shapes.items(), keys, strict=True)
    }
    norms = {"attention_norm": (n, d), "feed_norm": (n, d), "norm": (d,)}
    ones = {name: jnp.ones(shape, jnp.float32) for name, shape in norms.items()}
    return tie(config, drawn | ones)


def tie(config: Config, params: Weights) -> Weights:
    """The parameters with one table for both ends, if the model is tied."""
    return params | {"output": params["input"]} if config.tied else params


def features(config: Config, params: Weights, tokens: Tokens) -> Features:
    """The final normed states; logits are `states @ output.T`."""
    x = params["input"][tokens] + params["positions"][None]
    for layer in range(config.layers):
        h = _normed(x, params["attention_norm"][layer])
        x = x + _attended(config.heads, h @ params["qkv"][layer]) @ params["mix"][layer]
        h = _normed(x, params["feed_norm"][layer])
        gate, up = jnp.split(h @ params["up"][layer], 2, axis=-1)
        x = x + (jax.nn.silu(gate) * up) @ params["down"][layer]
    return _normed(x, params["norm"])


def _attended(heads: int, projected: Array) -> Array:
    """(B, L, D) what every position takes from all others, by queries, keys and values."""
    batch, length, width = projected.shape
    shape = batch, length, heads, width // 3 // heads
    q, k, v = (part.reshape(shape) for part in jnp.split(projected, 3, axis=-1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * shape[-1] ** -0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return mixed.reshape(batch, length, width // 3)


def _normed(x: Array, scale: Array) -> Array:
    size = jnp.mean(x * x, -1, keepdims=True) + 1e-6
    return x * jax.lax.rsqrt(size) * scale[None, None, :]
