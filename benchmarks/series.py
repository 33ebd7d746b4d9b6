"""A tiny masked-diffusion language model of arithmetic series, to measure diversity on.

The data. A series is x_k = a + k d for k = 0..7, with every x_k in 0..127 and d != 0, so that
|d| <= 18: there are 2,214 of them. They are put in a fixed random order, and the one of rank
r = 0, 1, ... is drawn with weight 1 / (r + SHIFT): a few are common and most are rare, so that a
sampler at a low temperature collapses on the common ones. Token 128 is the mask.

The model. A bidirectional pre-norm transformer shaped like LLaDA (RMSNorm, SwiGLU three times as
wide as the stream, no biases, separate input and output tables), but with learned positions:
rotary ones alone cannot tell apart the positions of an all-mask sequence.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from optax.contrib import MuonDimensionNumbers, muon
from rich.progress import Progress

NUMBERS, LENGTH, SHIFT = 128, 8, 10.0
MASK = NUMBERS
STEPS, BATCH, CHUNK = 2400, 128, 50
OPTIMIZER = {"rate": 0.008, "rms": 0.2, "decay": 0.1, "warmup": 0.05, "clip": 1.0}
OPTIMIZER |= {"adam_rate": 0.016, "b2": 0.98}
MATRICES = ("qkv", "mix", "up", "down")

_PAIRS = [(a, d) for a in range(NUMBERS) for d in range(-NUMBERS, NUMBERS) if d != 0]
_INSIDE = [(a, d) for a, d in _PAIRS if 0 <= a + (LENGTH - 1) * d < NUMBERS]
_STARTS, _STEPS = np.random.default_rng(0).permutation(_INSIDE).astype(np.int32).T[..., None]
SERIES = _STARTS + _STEPS * np.arange(LENGTH, dtype=np.int32)  # (2214, LENGTH), common first
WEIGHTS = 1 / (np.arange(len(SERIES)) + SHIFT)
WEIGHTS /= WEIGHTS.sum()

Params = dict[str, Array]


@dataclass(frozen=True)
class Config:
    """The shape of the model; `tied` makes the output table the input table."""

    vocab: int = MASK + 1
    length: int = LENGTH
    width: int = 128
    layers: int = 3
    heads: int = 4
    tied: bool = False


def draw(key: Array, n: int) -> Array:
    """`n` independent series from the data distribution, (n, LENGTH)."""
    return jax.random.choice(key, jnp.asarray(SERIES), (n,), p=jnp.asarray(WEIGHTS))


def is_series(tokens: Array) -> Array:
    """Whether each row of `tokens` (n, LENGTH) is one of the series."""
    steps = jnp.diff(tokens, axis=-1)
    constant = (steps == steps[:, :1]).all(-1) & (steps[:, 0] != 0)
    return constant & ((tokens >= 0) & (tokens < NUMBERS)).all(-1)


def init(config: Config, key: Array) -> Params:
    """Fresh parameters: a flat dict, the layers stacked along the first axis."""
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
    drawn = zip(shapes.items(), jax.random.split(key, len(shapes)), strict=True)
    params = {name: std * jax.random.normal(k, shape) for (name, (shape, std)), k in drawn}
    norms = {"attention_norm": (n, d), "feed_norm": (n, d), "norm": (d,)}
    return _tie(config, params | {name: jnp.ones(shape) for name, shape in norms.items()})


def _tie(config: Config, params: Params) -> Params:
    return params | {"output": params["input"]} if config.tied else params


def _rms(x: Array, scale: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def features(config: Config, params: Params, tokens: Array) -> Array:
    """The final normed states (B, L, D) of `tokens` (B, L); logits are `states @ output.T`."""
    heads = (*tokens.shape, config.heads, config.width // config.heads)
    x = params["input"][tokens] + params["positions"]
    for i in range(config.layers):
        h = _rms(x, params["attention_norm"][i])
        q, k, v = (part.reshape(heads) for part in jnp.split(h @ params["qkv"][i], 3, axis=-1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * heads[-1] ** -0.5
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
        x = x + mixed.reshape(x.shape) @ params["mix"][i]
        gate, up = jnp.split(_rms(x, params["feed_norm"][i]) @ params["up"][i], 2, axis=-1)
        x = x + (jax.nn.silu(gate) * up) @ params["down"][i]
    return _rms(x, params["norm"])


def loss(config: Config, params: Params, key: Array, tokens: Array) -> Array:
    """The masked-diffusion bound on the negative log-likelihood, in nats per token.

    The times are stratified over the batch, then rounded up to t = m / L, and exactly m random
    tokens are masked. In expectation this is the usual bound (each token masked with probability
    t ~ U(0, 1), cross entropy / t), with less variance and no sequence without a mask.
    """
    batch, length = tokens.shape
    key_time, key_mask = jax.random.split(key)
    times = (jax.random.uniform(key_time) + jnp.arange(batch) / batch) % 1
    count = jnp.clip(jnp.ceil(times * length), 1, length)[:, None]
    masked = jax.random.uniform(key_mask, tokens.shape).argsort(-1).argsort(-1) < count
    params = _tie(config, params)
    states = features(config, params, jnp.where(masked, MASK, tokens))
    losses = optax.softmax_cross_entropy_with_integer_labels(states @ params["output"].T, tokens)
    return jnp.mean(jnp.sum(losses * masked / count, -1))


def _optimizer(steps: int) -> optax.GradientTransformation:
    """Muon on the matrices, Adam on the rest, each with a warm-up and a cosine decay to zero."""
    warmup, peaks = int(OPTIMIZER["warmup"] * steps), (OPTIMIZER["rate"], OPTIMIZER["adam_rate"])
    rates = [optax.warmup_cosine_decay_schedule(0, peak, warmup, steps) for peak in peaks]

    def axes(params: Any) -> Any:
        return {name: MuonDimensionNumbers(1, 2) if name in MATRICES else None for name in params}

    both = muon(
        rates[0],
        adam_learning_rate=rates[1],
        adam_b2=OPTIMIZER["b2"],
        weight_decay=OPTIMIZER["decay"],
        consistent_rms=OPTIMIZER["rms"],
        muon_weight_dimension_numbers=axes,
    )
    return optax.chain(optax.clip_by_global_norm(OPTIMIZER["clip"]), both)


def train(
    config: Config, *, steps: int = STEPS, batch: int = BATCH, seed: int = 0, progress: bool = True
) -> Params:
    """Train from scratch, on fresh series at every step."""

    def step(carry: Any, key: Array) -> tuple[Any, Array]:
        params, state = carry
        key_data, key_loss = jax.random.split(key)
        tokens = draw(key_data, batch)
        value, grads = jax.value_and_grad(partial(loss, config))(params, key_loss, tokens)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    run = jax.jit(partial(jax.lax.scan, step))
    key_init, key_steps = jax.random.split(jax.random.key(seed))
    params, optimizer = init(config, key_init), _optimizer(steps)
    carry, keys = (params, optimizer.init(params)), jax.random.split(key_steps, steps)
    with Progress(disable=not progress) as bar:
        task = bar.add_task("train", total=steps)
        for start in range(0, steps, CHUNK):
            carry, values = run(carry, keys[start : start + CHUNK])
            label = f"train, loss {float(values.mean()):.3f}"
            bar.update(task, advance=len(values), description=label)
    return _tie(config, carry[0])


def load_or_train(
    config: Config, folder: str | Path, *, steps: int = STEPS, batch: int = BATCH, seed: int = 0
) -> Params:
    """The trained parameters, from `folder` if this very recipe was trained there before."""
    recipe = [asdict(config), OPTIMIZER, SHIFT, steps, batch, seed]
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]
    path = Path(folder) / f"series-{digest}.npz"
    if not path.exists():
        params = train(config, steps=steps, batch=batch, seed=seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(unfinished, allow_pickle=False, **jax.device_get(params))
        unfinished.replace(path)  # a killed run leaves no broken cache
    with np.load(path, allow_pickle=False) as arrays:
        return {name: jnp.asarray(arrays[name]) for name in arrays.files}
