"""A toy denoiser, its parameters, and what it sees: small enough to look at."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from sake_jax.core import Context, Tables
from sake_jax.node import Node
from sake_jax.typing import Params
from sake_jax.view import Canvas, Reread, View


class ToyDenoiser(Node):
    """A small untied network with a linear head; with a cache it recomputes the window only.

    >>> denoiser, params = ToyDenoiser(), toy_params(0)
    >>> features, _ = denoiser.read(params, toy_view(0), None)
    >>> denoiser.head(params, features).shape  # rows, columns, tokens
    (4, 10, 17)
    """

    affine: ClassVar[bool] = True
    reads_perturbation: ClassVar[bool] = True

    def read(self, params: Params, view: View, cache: Any):
        """Each row mixes its token, its position, the condition and the mean of all rows."""
        embedded = params["input"][view.tokens] + params["place"][view.positions]
        if view.perturbation is not None:
            embedded = embedded + view.perturbation
        weight = view.attend[..., None].astype(embedded.dtype)
        mean = jnp.sum(weight * embedded, axis=1) / jnp.maximum(jnp.sum(weight, axis=1), 1)
        mixed = embedded + mean[:, None, :]
        if view.cond is not None:
            mixed = mixed + params["label"][view.cond][:, None, :]
        rows = jnp.tanh(mixed @ params["mix"]) * params["scale"]
        if cache is None:
            return rows, None
        rows = jnp.where(_reread(view)[None, :, None], rows, cache)
        return rows, rows

    def empty_cache(self, params: Params, batch: int, length: int):
        return jnp.zeros((batch, length, params["mix"].shape[0]), params["mix"].dtype)

    def head(self, params: Params, rows):
        return rows @ params["output"].T + params["bias"][None, None, :]

    def tables(self, params: Params) -> Tables:
        return Tables(params["input"], params["output"], params["bias"])


def _reread(view: View) -> Array:
    """(L,) which columns a read with a cache recomputes: what `view.reread` chooses."""
    column = jnp.arange(view.tokens.shape[1])
    chosen = view.reread or Reread(jnp.int32(0), ((0, view.width),))
    everything = (column.size, column.size)
    spans = jnp.asarray([everything if span is None else span for span in chosen.spans])
    before, after = spans[chosen.choice]
    first, end = view.window_start - before, view.window_start + after
    return (column >= first) & (column < end)


def toy_params(seed: int, vocabulary: int = 17, width: int = 6, length: int = 32) -> Params:
    """Random parameters for `ToyDenoiser`.

    >>> toy_params(0, vocabulary=5, width=3)["output"].shape
    (5, 3)
    """
    random = np.random.default_rng(seed)
    shapes = {
        "input": (vocabulary, width),
        "output": (vocabulary, width),
        "mix": (width, width),
        "place": (length, width),
        "label": (4, width),
        "bias": (vocabulary,),
    }
    params = {name: random.normal(size=shape) for name, shape in shapes.items()}
    return {name: jnp.asarray(p, jnp.float32) for name, p in params.items()} | {
        "scale": jnp.float32(2.0)
    }


def toy_view(
    seed: int, *, vocabulary: int = 17, rows: int = 4, length: int = 10, width: int = 6
) -> View:
    """A random view: padding on the left, a short prompt, a window at the end, some of it open.

    >>> view = toy_view(0, rows=2, length=8, width=3)
    >>> view.tokens.shape, int(view.window_start)
    ((2, 8), 5)
    """
    random = np.random.default_rng(seed)
    columns = np.arange(length)[None, :]
    pads = random.integers(0, 3, (rows, 1))
    start = length - width
    mask_id = vocabulary - 1
    is_open = (columns >= start) & (random.random((rows, length)) < 0.6)
    tokens = random.integers(0, mask_id, (rows, length))
    progress = jnp.full(rows, random.uniform(0.1, 0.9), jnp.float32)
    canvas = Canvas(
        tokens=jnp.asarray(np.where(is_open, mask_id, tokens), jnp.int32),
        open=jnp.asarray(is_open),
        prompt=jnp.asarray((columns >= pads) & (columns < start)),
        attend=jnp.asarray(columns >= pads),
        positions=jnp.asarray(np.repeat(columns, rows, axis=0), jnp.int32),
        prompt_id=jnp.asarray(np.arange(rows) // 2, jnp.int32),
        sample_id=jnp.asarray(np.arange(rows) % 2, jnp.int32),
        cond=jnp.asarray(random.integers(0, 3, rows), jnp.int32),
        mask_id=jnp.int32(mask_id),
        generation_start=start,
        samples=2,
    )
    return View(
        canvas=canvas,
        window_start=jnp.int32(start),
        time=1 - progress,
        next_time=0.5 * (1 - progress),
        progress=progress,
        quota=jnp.ones(rows, jnp.int32),
        width=width,
    )


def toy_context(params: Params, view: View, **changes: Any) -> Context:
    """The context a guidance meets when `ToyDenoiser` has read this view.

    >>> toy_context(toy_params(0), toy_view(0), record="signal").record
    'signal'
    """
    denoiser = ToyDenoiser()
    features, _ = denoiser.read(params, view, None)
    ctx = Context(
        view=view,
        features=features,
        tables=denoiser.tables(params),
        head=lambda rows: denoiser.head(params, rows),
        read=lambda other, cache: denoiser.read(params, other, cache),
        log_q=lambda logits: logits,
        fold=changes.get("record", "brief") == "brief",
    )
    return dataclasses.replace(ctx, **changes)
