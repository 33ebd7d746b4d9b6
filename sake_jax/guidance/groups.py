"""Which rows are compared with which: inside a sequence, or across the samples of a prompt."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from sake_jax.checks import require
from sake_jax.core import Context
from sake_jax.guidance.kernels import Heuristic, Peers, centre, pair_weights, squared_distances
from sake_jax.typing import Features, Flags, Number, PerRow

SCOPES = ("sequence", "batch", "both")
NARROWEST = 1e-2
"""A bandwidth taken from the rows stays above this part of their size: between rows that
differ by rounding only, distance means nothing."""

Grouped = tuple[Array, Peers, Callable[[Array], Array]]
"""Rows (G, W, D), peers with the same leading axis, and the way back to (B, W, ...)."""


def group(
    scope: str,
    everyone: Features,
    valid: Flags,
    ctx: Context,
    bandwidth: Number,
    heuristic: Heuristic | None,
    attention_bandwidth: Number,
) -> list[Grouped]:
    """The groups of a scope; "both" has those of the sequence and of the batch."""
    build = {"sequence": [_sequence], "batch": [_batch], "both": [_sequence, _batch]}[scope]

    def per_row(value: Number) -> PerRow:
        return jnp.broadcast_to(ctx.number(value, 1), everyone.shape[:1])

    fixed = per_row(1.0 if heuristic else bandwidth)
    numbers = fixed, heuristic, per_row(attention_bandwidth)
    return [make(everyone, valid, ctx, *numbers) for make in build]


def _sequence(everyone, valid, ctx, fixed, heuristic, attention) -> Grouped:
    """One group per row of the batch: the window's rows against all rows of the canvas."""
    rows = ctx.view.window(everyone)
    index = ctx.view.window_start + jnp.arange(ctx.view.width)
    peers = _peers(everyone, ctx.view.positions, valid, index, attention)
    bandwidth = fixed
    if heuristic:
        squared = jax.vmap(heuristic)(*jax.vmap(_pairs)(rows, peers))
        bandwidth = jax.vmap(_not_too_narrow)(squared, everyone, valid)
    return rows, peers.replace(bandwidth=bandwidth), lambda result: result


def _batch(everyone, valid, ctx, fixed, heuristic, attention) -> Grouped:
    """One group per prompt and column: the samples of the prompt at that position.

    Numbers that differ from row to row count as those of a prompt's first row.
    """
    samples, width = ctx.view.samples, ctx.view.width
    rule = "comparing across samples must have 2 samples of each prompt or more"
    whole = samples > 1 and everyone.shape[0] % samples == 0
    require(whole, rule, (everyone.shape[0], samples), "raise samples, or keep prompts whole")
    prompts = everyone.shape[0] // samples

    def by_column(window: Array) -> Array:  # (Q·M, W, ...) -> (Q, W, M, ...)
        return jnp.moveaxis(window.reshape(prompts, samples, *window.shape[1:]), 1, 2)

    def flat(grouped: Any) -> Any:  # (Q, W, ...) -> (Q·W, ...)
        return jax.tree.map(lambda x: x.reshape(prompts * width, *x.shape[2:]), grouped)

    def back(result: Array) -> Array:  # (Q·W, M, ...) -> (Q·M, W, ...)
        columns = result.reshape(prompts, width, samples, *result.shape[2:])
        return jnp.moveaxis(columns, 2, 1).reshape(prompts * samples, width, *result.shape[2:])

    rows = by_column(ctx.view.window(everyone))
    taking_part = by_column(ctx.view.window(valid))
    places = jnp.zeros((prompts * width, samples), jnp.int32)  # one column: no distance
    peers = _peers(
        flat(rows),
        places,
        flat(taking_part),
        jnp.arange(samples),
        jnp.repeat(attention[::samples], width),
    )
    bandwidth = fixed[::samples]
    if heuristic:  # one bandwidth per prompt, from all of its columns
        distances, weights = jax.vmap(_pairs)(flat(rows), peers)
        squared = jax.vmap(heuristic)(distances.reshape(prompts, -1), weights.reshape(prompts, -1))
        sizes = rows.reshape(prompts, width * samples, -1), taking_part.reshape(prompts, -1)
        bandwidth = jax.vmap(_not_too_narrow)(squared, *sizes)
    return flat(rows), peers.replace(bandwidth=jnp.repeat(bandwidth, width)), back


def _peers(rows, positions, valid, index, attention) -> Peers:
    groups, window = rows.shape[0], index.shape[0]
    return Peers(
        rows=rows,
        positions=positions,
        weight=valid.astype(rows.dtype),
        index=jnp.broadcast_to(index[None, :], (groups, window)),
        bandwidth=jnp.ones(groups, rows.dtype),
        attention_bandwidth=attention.astype(rows.dtype),
        offset=jnp.zeros((groups, window), rows.dtype),
    )


def _pairs(rows: Float[Array, "W D"], peers: Peers):
    middle = centre(peers)
    return squared_distances(rows - middle, peers.rows - middle), pair_weights(peers)


def _not_too_narrow(
    squared: Float[Array, ""],
    rows: Float[Array, "L D"],
    valid: Bool[Array, "L"],
) -> Float[Array, ""]:
    weight = valid.astype(rows.dtype)
    size = jnp.sum(weight[:, None] * jnp.square(rows)) / jnp.maximum(jnp.sum(weight), 1)
    return jnp.sqrt(jnp.maximum(squared, jnp.square(NARROWEST) * size + 1e-12))
