"""A tiny masked-diffusion language model of arithmetic series, to measure diversity on.

The data. A series is x_k = a + k d for k = 0..7, with every x_k in 0..127 and d != 0 (so |d| <= 18):
there are 2,214 of them. They are put in a fixed random order and the one of rank r = 0, 1, ... is
drawn with weight 1 / (r + SHIFT): a few series are common and most are rare, so that a sampler at
a low temperature collapses on the common ones. Token 128 is the mask.

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

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from optax.contrib import MuonDimensionNumbers, muon
from tqdm import tqdm

NUMBERS, LENGTH = 128, 8
MASK = NUMBERS
SHIFT = 10.0
STEPS, BATCH, CHUNK = 3000, 64, 50
RECIPE = {
    "rate": 0.008,
    "table_rate": 0.016,
    "warmup": 0.05,
    "decay": 0.1,
    "b2": 0.98,
    "clip": 1.0,
    "shift": SHIFT,
}
MATRICES = ("qkv", "mix", "up", "down")

Params = dict[str, Array]


@dataclass(frozen=True)
class Config:
    """The shape of the model; `tied` makes the output table the input table."""

    vocab: int = NUMBERS + 1
    length: int = LENGTH
    width: int = 128
    layers: int = 3
    heads: int = 4
    tied: bool = False


def _series() -> np.ndarray:
    """All the series, (2214, LENGTH), the most common first."""
    starts, steps = np.meshgrid(np.arange(NUMBERS), np.arange(1 - NUMBERS, NUMBERS), indexing="ij")
    rows = starts.reshape(-1, 1) + steps.reshape(-1, 1) * np.arange(LENGTH)
    valid = (rows >= 0).all(1) & (rows < NUMBERS).all(1) & (rows[:, 0] != rows[:, 1])
    return np.random.default_rng(0).permutation(rows[valid]).astype(np.int32)


SERIES = _series()
WEIGHTS = 1 / (np.arange(len(SERIES)) + SHIFT)
WEIGHTS /= WEIGHTS.sum()


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
        "input": (config.vocab, d),
        "output": (config.vocab, d),
        "positions": (config.length, d),
        "qkv": (n, d, 3 * d),
        "mix": (n, d, d),
        "up": (n, d, 6 * d),
        "down": (n, 3 * d, d),
    }
    keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
    params = {name: 0.02 * jax.random.normal(keys[name], shape) for name, shape in shapes.items()}
    for name in MATRICES:
        params[name] *= shapes[name][1] ** -0.5 / 0.02
    for name in ("mix", "down"):  # the writers into the stream start small
        params[name] *= (2 * n) ** -0.5
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

    The times are stratified over the batch (one shared uniform, evenly spaced shifts), then
    rounded up to t = m / L, and exactly m random tokens are masked. In expectation this is the
    usual bound (each token masked with probability t ~ U(0, 1), cross entropy / t), with less
    variance, and no sequence is left without a mask.
    """
    batch, length = tokens.shape
    key_time, key_mask = jax.random.split(key)
    times = (jax.random.uniform(key_time) + jnp.arange(batch) / batch) % 1
    count = jnp.clip(jnp.ceil(times * length), 1, length)[:, None]
    ranks = jax.random.uniform(key_mask, tokens.shape).argsort(-1).argsort(-1)
    masked = ranks < count
    params = _tie(config, params)
    states = features(config, params, jnp.where(masked, config.vocab - 1, tokens))
    losses = optax.softmax_cross_entropy_with_integer_labels(states @ params["output"].T, tokens)
    return jnp.mean(jnp.sum(losses * masked / count, -1))


def train(
    config: Config, *, steps: int = STEPS, batch: int = BATCH, seed: int = 0, progress: bool = True
) -> Params:
    """Train from scratch: Muon on the matrices, Adam on the tables, warm-up and cosine decay."""
    optimizer = _optimizer(steps)

    def step(carry: tuple[Params, optax.OptState], key: Array):
        params, state = carry
        key_data, key_loss = jax.random.split(key)
        tokens = draw(key_data, batch)
        value, grads = jax.value_and_grad(partial(loss, config))(params, key_loss, tokens)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    run = jax.jit(partial(jax.lax.scan, step))
    key_init, key_steps = jax.random.split(jax.random.key(seed))
    params = init(config, key_init)
    carry, keys = (params, optimizer.init(params)), jax.random.split(key_steps, steps)
    with tqdm(total=steps, desc="train", unit="step", disable=not progress) as bar:
        for start in range(0, steps, CHUNK):
            carry, values = run(carry, keys[start : start + CHUNK])
            bar.set_postfix(loss=f"{float(values.mean()):.4f}", refresh=False)
            bar.update(len(values))
    return _tie(config, carry[0])


def _optimizer(steps: int) -> optax.GradientTransformation:
    def rate(peak: float) -> optax.Schedule:
        warmup = int(RECIPE["warmup"] * steps)
        return optax.warmup_cosine_decay_schedule(0.0, peak, warmup, steps)

    def matrices(params: Params) -> dict[str, MuonDimensionNumbers | None]:
        return {name: MuonDimensionNumbers(1, 2) if name in MATRICES else None for name in params}

    muon_ = muon(
        rate(RECIPE["rate"]),
        adam_learning_rate=rate(RECIPE["table_rate"]),
        adam_b2=RECIPE["b2"],
        weight_decay=RECIPE["decay"],
        consistent_rms=0.2,
        muon_weight_dimension_numbers=matrices,
    )
    return optax.chain(optax.clip_by_global_norm(RECIPE["clip"]), muon_)


def load_or_train(
    config: Config,
    folder: str | Path,
    *,
    steps: int = STEPS,
    batch: int = BATCH,
    seed: int = 0,
    progress: bool = True,
) -> Params:
    """The trained parameters, from `folder` if this very recipe was trained before."""
    recipe = asdict(config) | RECIPE | {"steps": steps, "batch": batch, "seed": seed}
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]
    path = Path(folder) / f"series-{digest}.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as arrays:
            return {name: jnp.asarray(arrays[name]) for name in arrays.files}
    params = train(config, steps=steps, batch=batch, seed=seed, progress=progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_name(f"{path.stem}.{os.getpid()}.tmp.npz")
    np.savez(partial_path, **{name: np.asarray(value) for name, value in params.items()})
    partial_path.replace(path)  # atomic: a killed run leaves no broken cache
    return params
