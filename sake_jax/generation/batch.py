"""One batch of rows, from its canvas to texts."""

import functools
import math
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from sake_jax.core import Canvas
from sake_jax.generation.ending import Ending
from sake_jax.generation.prompts import Batch
from sake_jax.generation.result import Row
from sake_jax.samplers.loop import Trip, depart, prepared, travel
from sake_jax.samplers.step import Sampler
from sake_jax.sharding import mesh_of, spans_processes, to_host
from sake_jax.typing import Params

LOOKS = 16
"""How often a batch is looked at while it runs, for a progress bar or stop strings."""


# Unused parameters stay: they say which mesh it is.
@functools.partial(jax.jit, static_argnames="trajectory", keep_unused=True)
def _depart(sampler, params, key, canvas, stop, trajectory: bool) -> Trip:
    return depart(sampler, params, key, canvas, stop=stop, trajectory=trajectory)


@functools.partial(jax.jit, static_argnames="reread", donate_argnames="trip")
def _travel(sampler, params, key, trip, end, stop, reread: int) -> Trip:
    ready = prepared(sampler, params)
    return travel(sampler, ready, key, trip, end, stop=stop, reread=reread)


def run_batch(
    lm,
    sampler,
    key,
    canvas,
    ending: Ending,
    trajectory,
    often: bool,
    advance: Callable[[int], None],
    watch: Callable[[Canvas], None] | None = None,
) -> Trip:
    """One batch to its end; looked at now and then if `often`, for a bar or stop strings, and
    after each step by `watch`. On a mesh there may be more rows in the end, see `filled`."""
    real = len(canvas.tokens)
    canvas = filled(canvas, sampler, lm.params)
    trip = _depart(sampler, lm.params, key, canvas, ending.stop, trajectory)
    steps = sampler.plan.steps
    reached, stride = 0, 1 if watch else -(-steps // LOOKS) if often else steps
    for first, count, reread in sampler.plan.segments:
        for end in range(first + stride, first + count + stride, stride):
            end = min(end, first + count)
            trip = _travel(sampler, lm.params, key, trip, jnp.int32(end), ending.stop, reread)
            if watch:
                shown = trip.state.canvas
                shown = to_host(shown) if spans_processes(shown) else shown
                watch(_picked(shown, np.arange(real)) if len(shown.tokens) > real else shown)
            if often:
                advance(end - reached)
                reached = end
                trip = _close(trip, ending)
                if not bool(jnp.any(trip.state.canvas.open & trip.state.canvas.attend)):
                    advance(steps - reached)
                    return trip
    return trip


def _close(trip: Trip, ending: Ending) -> Trip:
    """Ends rows that have written a stop string and everything to its left."""
    if not ending.strings:
        return trip
    canvas = trip.state.canvas
    tokens, still = to_host(canvas.tokens), np.array(to_host(canvas.open & canvas.attend))
    text = ~to_host(canvas.prompt) & (np.arange(tokens.shape[1]) >= canvas.start)
    for row, ids in enumerate(tokens):
        until = int(np.argmax(still[row])) if still[row].any() else len(ids)
        if ending.found(ids[:until][text[row, :until]].tolist()):
            still[row] = False
    # On a mesh, where it was: elsewhere it would be another program to the compiler.
    where = None if mesh_of(canvas.open) is None else canvas.open.sharding
    still = jax.device_put(still, where)
    return trip.replace(state=trip.state.replace(canvas=canvas.replace(open=still)))


def filled(canvas: Canvas, sampler: Sampler, params: Params) -> Canvas:
    """Copies of the last row at the end, until a mesh's data axis divides the rows.

    Copies of the last prompt's rows where samples look at each other: their groups stay whole.
    """
    mesh, rows = mesh_of(params), len(canvas.tokens)
    unit = canvas.samples if across_samples(sampler) else 1
    missing = -rows % math.lcm(unit, mesh.shape.get("data", 1) if mesh else 1)
    if not missing:
        return canvas
    return _picked(canvas, np.append(np.arange(rows), rows - unit + np.arange(missing) % unit))


def _picked(canvas: Canvas, rows: np.ndarray) -> Canvas:
    return jax.tree.map(lambda leaf: leaf[rows] if leaf.ndim else leaf, canvas)


def across_samples(sampler: Sampler) -> bool:
    """Whether samples of a prompt look at each other."""
    has_scope = lambda node: hasattr(node, "scope")  # noqa: E731
    nodes = jax.tree.leaves(sampler.guidance, is_leaf=has_scope)
    return any(node.scope != "sequence" for node in nodes if has_scope(node))


def rows_of(trip: Trip, begun: Canvas, part: Batch, ending: Ending) -> tuple[list[Row], list]:
    """The finished rows of a batch, and (step, prompt, sample) of those that are not numbers."""
    canvas = trip.state.canvas
    real = len(begun.tokens)
    window = lambda columns: to_host(columns)[:real, begun.start :]  # noqa: E731
    tokens, log_p = window(canvas.tokens), window(canvas.log_p)
    noise = tokens == (-1 if begun.mask_id is None else int(begun.mask_id))
    written = window(begun.attend if ending.infill else begun.open) & ~noise
    taken = int(trip.taken)
    finite = to_host(trip.info.finite)[:taken]
    rows, bad = [], []
    for at, prompt, sample in pairs(part):
        if not finite[:, at].all():
            first = int(np.argmin(finite[:, at]))
            bad.append((int(to_host(trip.steps)[first]), prompt, sample))
            continue
        text = tokens[at][written[at]].tolist()
        count, ended = ending.count(text)
        kept = written[at] & (np.cumsum(written[at]) <= count)
        chances = np.where(kept, log_p[at], 0).tolist()
        words = ending.text(text[:count])
        rows.append(
            Row(prompt, sample, tokens[at].tolist(), kept.tolist(), chances, words, ended, taken)
        )
    return rows, bad


def pairs(part: Batch) -> Iterator[tuple[int, int, int]]:
    """(row, prompt, sample) of a batch, without those that only fill it up."""
    for at in range(part.real * part.samples):
        yield at, part.prompts[at // part.samples], part.first + at % part.samples
