"""Trains the model of arithmetic series, once: the parameters are kept for the next time."""

import hashlib
import json
import os
import zlib
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from optax.contrib import MuonDimensionNumbers, muon

from sake_jax.experiments.series import MASK_ID, SHIFT, Config, Weights, draw, features, init, tie
from sake_jax.progress import bar
from sake_jax.typing import Key, Tokens

STEPS, BATCH, CHUNK = 2400, 128, 50
OPTIMIZER = {"rate": 0.008, "rms": 0.2, "decay": 0.1, "warmup": 0.05, "clip": 1.0}
OPTIMIZER |= {"adam_rate": 0.016, "b2": 0.98}
MATRICES = ("qkv", "mix", "up", "down")


def loss(config: Config, params: Weights, key: Key, tokens: Tokens) -> Array:
    """The masked-diffusion bound on the negative log-likelihood, in nats per token.

    The times are stratified over the batch, then rounded up to t = m / L, and exactly m random
    tokens are masked. In expectation this is the usual bound (each token masked with probability
    t ~ U(0, 1), cross entropy / t), with less variance and no sequence without a mask.
    """
    batch, length = tokens.shape
    key_time, key_places = jax.random.split(key)
    strata = jnp.arange(batch, dtype=jnp.float32) / batch
    times = (jax.random.uniform(key_time, (), jnp.float32) + strata) % 1
    count = jnp.clip(jnp.ceil(times * length), 1, length)[:, None]
    places = jax.random.uniform(key_places, tokens.shape, jnp.float32).argsort(-1).argsort(-1)
    masked = places.astype(jnp.float32) < count
    params = tie(config, params)
    states = features(config, params, jnp.where(masked, MASK_ID, tokens))
    losses = optax.softmax_cross_entropy_with_integer_labels(states @ params["output"].T, tokens)
    return jnp.mean(jnp.sum(losses * masked.astype(jnp.float32) / count, -1))


def _optimizer(steps: int) -> optax.GradientTransformation:
    """Muon on the matrices, Adam on the rest, each with a warm-up and a cosine decay to zero."""
    warmup, peaks = int(OPTIMIZER["warmup"] * steps), (OPTIMIZER["rate"], OPTIMIZER["adam_rate"])
    rates = [optax.warmup_cosine_decay_schedule(0.0, peak, warmup, steps) for peak in peaks]

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
) -> Weights:
    """Trains from scratch, on fresh series at every step."""

    def step(carry: Any, key: Key) -> tuple[Any, Array]:
        params, state = carry
        key_data, key_loss = jax.random.split(key)
        tokens = draw(key_data, batch)
        value, grads = jax.value_and_grad(partial(loss, config))(params, key_loss, tokens)
        # optax mixes dtypes and ranks, which a user's strict modes would refuse.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    run = jax.jit(partial(jax.lax.scan, step))
    key_init, key_steps = jax.random.split(jax.random.key(seed))
    params, optimizer = init(config, key_init), _optimizer(steps)
    carry, keys = (params, optimizer.init(params)), jax.random.split(key_steps, steps)
    with bar("train", steps, progress) as advance:
        for start in range(0, steps, CHUNK):
            carry, values = run(carry, keys[start : start + CHUNK])
            advance(len(values))
    return tie(config, carry[0])


def load_or_train(
    config: Config,
    folder: str | Path | None = None,
    *,
    steps: int = STEPS,
    batch: int = BATCH,
    seed: int = 0,
    progress: bool = True,
) -> Weights:
    """The trained parameters, from a folder if this very recipe was trained there before.

    Without a folder, the user's cache has one.
    """
    recipe = [asdict(config), OPTIMIZER, SHIFT, steps, batch, seed]
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]
    path = Path(cache_folder() if folder is None else folder) / f"series-{digest}.npz"
    if not path.exists():
        params = train(config, steps=steps, batch=batch, seed=seed, progress=progress)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(unfinished, allow_pickle=False, **jax.device_get(params))
        unfinished.replace(path)  # a killed run leaves no broken cache
    with np.load(path, allow_pickle=False) as arrays:
        return {name: jnp.asarray(arrays[name]) for name in arrays.files}


def checksum(params: Weights) -> int:
    """Of all numbers: what tells trained parameters from others."""
    return zlib.crc32(b"".join(np.asarray(params[name]).tobytes() for name in sorted(params)))


def cache_folder() -> Path:
    """Where trained parameters are kept by default."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "sake_jax" / "series"
