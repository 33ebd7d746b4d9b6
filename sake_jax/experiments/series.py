"""Arithmetic series: the data, and a small language model of them, to measure diversity on.

A series is x_k = a + k d for k = 0..7, with every x_k in 0..127 and d != 0, so that |d| <= 18:
there are 2,214 of them. They are put in a fixed random order, and the one of rank r = 0, 1, ... is
drawn with weight 1 / (r + SHIFT): a few are common and most are rare, so that a sampler at a low
temperature collapses on the common ones.

The model is the library's transformer, shaped like LLaDA but with learned positions: rotary ones
alone cannot tell apart the positions of an all-mask sequence. The library's trainer trains it, on
pairs whose prompt is empty, in a folder of the user's cache: a stopped training goes on there.
"""

import dataclasses
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import sake_jax as sj
from sake_jax.models import NetworkDenoiser, TransformerConfig
from sake_jax.progress import bar
from sake_jax.training import Model, PairsData, Recipe, Trainer, Training
from sake_jax.typing import Logits, Params, Rows, Tokens

NUMBERS, LENGTH, SHIFT = 128, 8, 10.0
FIRST_ID = 1
"""The token of the number 0. The one before ends a text, and never occurs."""
MASK_ID = FIRST_ID + NUMBERS
VOCABULARY = MASK_ID + 1

_PAIRS = [(a, d) for a in range(NUMBERS) for d in range(-NUMBERS, NUMBERS) if d != 0]
_INSIDE = [(a, d) for a, d in _PAIRS if 0 <= a + (LENGTH - 1) * d < NUMBERS]
_STARTS, _STEPS = np.random.default_rng(0).permutation(_INSIDE).astype(np.int32).T[..., None]
SERIES = _STARTS + _STEPS * np.arange(LENGTH, dtype=np.int32)[None, :]
"""(2214, LENGTH) all of them, the common ones first."""
WEIGHTS = 1 / (np.arange(len(SERIES)) + SHIFT)
WEIGHTS /= WEIGHTS.sum()

TRAINING = Training(steps=2400, batch=128, warmup=120, decay=0.5, weight_decay=0.01, ema=0.99)
"""Of the full experiment."""
NEVER = -1e9
"""What is added to the logits of tokens that are no numbers: they are never drawn."""


class Series:
    """The data as `sake_jax.training` takes problems: answers without prompts."""

    words = tuple(map(str, range(NUMBERS)))

    def pairs(self, split: str, count: int, seed: Sequence[int]) -> list[tuple[str, str]]:
        """Independent series. Nothing is held out: the model is to learn this distribution."""
        ranks = np.random.default_rng(seed).choice(len(SERIES), count, p=WEIGHTS)
        return [("", " ".join(map(str, SERIES[rank].tolist()))) for rank in ranks]


class SeriesDenoiser(NetworkDenoiser):
    """The library's denoiser, whose head never gives a token that is no number."""

    def head(self, params: Params, rows: Rows) -> Logits:
        return super().head(params, rows) + self._bias()[None, None]

    def tables(self, params: Params) -> sj.Tables:
        return super().tables(params).replace(bias=self._bias())

    def _bias(self) -> Array:
        """(V,) 0 for numbers."""
        tokens = jnp.arange(self.config.V)
        return jnp.where((tokens >= FIRST_ID) & (tokens < MASK_ID), 0.0, NEVER)


def is_series(tokens: Tokens) -> Array:
    """(B,) whether each row of tokens is one of the series."""
    numbers = tokens - FIRST_ID
    steps = jnp.diff(numbers, axis=-1)
    constant = (steps == steps[:, :1]).all(-1) & (steps[:, 0] != 0)
    return constant & ((numbers >= 0) & (numbers < NUMBERS)).all(-1)


def quality(tokens: Array | np.ndarray) -> tuple[float, float]:
    """Validity, the share of rows that are series, and the share of distinct ones among these."""
    valid = np.asarray(is_series(jnp.asarray(tokens)))
    rows = np.asarray(tokens)[valid]
    return float(valid.mean()), len(np.unique(rows, axis=0)) / max(len(rows), 1)


def make_recipe(
    *,
    width: int = 128,
    layers: int = 3,
    heads: int = 4,
    tied: bool = False,
    training: Training = TRAINING,
) -> Recipe:
    """What is trained; `tied` makes the output table the input table."""
    shape = Model(
        layers=layers,
        width=width,
        heads=heads,
        mlp=3 * width,
        context=LENGTH,
        positions="learned",
        tied=tied,
    )
    problems = PairsData(f"{__name__}:{Series.__name__}")
    return Recipe("series-tied" if tied else "series", problems, shape, training)


def make_denoiser(recipe: Recipe) -> SeriesDenoiser:
    """Reads the parameters that `load_or_train` gives: with two tables, also where they are tied,
    so that one program serves both models."""
    network = recipe.config(VOCABULARY).network
    assert isinstance(network, TransformerConfig), "the recipe is ours"
    return SeriesDenoiser(dataclasses.replace(network, tied=False))


def load_or_train(
    recipe: Recipe, folder: str | Path | None = None, progress: bool = True
) -> Params:
    """The trained parameters, from a folder if this very recipe was trained there before.

    Without a folder, the user's cache has one.
    """
    written = json.dumps([dataclasses.asdict(recipe), SHIFT], sort_keys=True)
    digest = hashlib.sha256(written.encode()).hexdigest()[:16]
    place = Path(cache_folder() if folder is None else folder) / f"{recipe.name}-{digest}"
    trainer = Trainer(recipe, place)
    steps, done = recipe.training.steps, int(trainer.state.step)
    with bar("train", steps - done, progress and done < steps) as advance:
        trainer.train(lambda step, loss: advance(1))
    params = trainer.state.ema
    return params | {"output": params["input"]} if recipe.model.tied else params


def checksum(params: Params) -> int:
    """Of all numbers: what tells trained parameters from others."""
    leaves = jax.tree.leaves(jax.device_get(params))  # dictionaries are in the order of their keys
    return zlib.crc32(b"".join(np.asarray(leaf).tobytes() for leaf in leaves))


def cache_folder() -> Path:
    """Where trained parameters are kept by default."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "sake_jax" / "series"
