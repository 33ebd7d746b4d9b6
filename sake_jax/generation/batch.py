"""One batch of rows, from its canvas to texts."""

import math
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from sake_jax.generation.ending import TextEnd
from sake_jax.generation.prompts import Batch
from sake_jax.generation.result import Row
from sake_jax.samplers.loop import RunProgress, advance_until, begin_progress
from sake_jax.samplers.paying import at_most
from sake_jax.samplers.sampler import Sampler
from sake_jax.sharding import mesh_of, spans_processes, to_host
from sake_jax.typing import Params
from sake_jax.view import Canvas

LOOKS = 16
"""How often a batch is looked at while it runs, for a progress bar or stop strings."""


def run_batch(
    lm,
    sampler,
    key,
    canvas,
    ending: TextEnd,
    trajectory,
    often: bool,
    advance: Callable[[int], None],
    watch: Callable[[Canvas], None] | None = None,
) -> RunProgress:
    """One batch to its end; looked at now and then if `often`, for a bar or stop strings, and
    after each step by `watch`. On a mesh there may be more rows in the end, see `filled`."""
    rows, steps, before = len(canvas.tokens), sampler.plan.steps, 0
    stride = 1 if watch else -(-steps // LOOKS) if often else steps
    progress = None
    for end, progress in batch_steps(lm, sampler, key, canvas, ending, trajectory, stride):
        if watch:
            watch(_first_rows(progress.state.canvas, rows))
        advance(end - before)
        before = end
    advance(steps - before)
    assert progress is not None, "a plan has a step at least"
    return progress


def batch_steps(
    lm, sampler, key, canvas: Canvas, ending: TextEnd, trajectory: bool, stride: int
) -> Iterator[tuple[int, RunProgress]]:
    """A batch after every `stride` steps, with how many the plan is through, until all rows ended.

    What is yielded is used up by the next step: copy what is to be kept.
    """
    canvas = filled(canvas, sampler, lm.params)
    steps = sampler.plan.steps
    sampler = at_most(sampler, stride)
    progress = begin_progress(sampler, lm.params, key, canvas, trajectory=trajectory)
    for begun in range(0, steps, stride):
        end = min(begun + stride, steps)
        progress = advance_until(sampler, lm.params, key, progress, jnp.int32(end), ending.stop)
        progress = _close(progress, ending)
        yield end, progress
        if stride < steps and not any_open(progress.state.canvas):
            return


def any_open(canvas: Canvas) -> bool:
    """Whether anything is still to be written."""
    return bool(jnp.any(canvas.open & canvas.attend))


def _first_rows(canvas: Canvas, rows: int) -> Canvas:
    """The canvas as somebody watches it: whole, and without rows that only fill up a mesh."""
    canvas = to_host(canvas) if spans_processes(canvas) else canvas
    return _picked(canvas, np.arange(rows)) if len(canvas.tokens) > rows else canvas


def _close(progress: RunProgress, ending: TextEnd) -> RunProgress:
    """Ends rows that have written a stop string and everything to its left."""
    if not ending.strings:
        return progress
    canvas = progress.state.canvas
    tokens, still = to_host(canvas.tokens), np.array(to_host(canvas.open & canvas.attend))
    text = ~to_host(canvas.prompt) & (np.arange(tokens.shape[1]) >= canvas.generation_start)
    for row, ids in enumerate(tokens):
        until = int(np.argmax(still[row])) if still[row].any() else len(ids)
        if ending.has_stop_string(ids[:until][text[row, :until]].tolist()):
            still[row] = False
    # On a mesh, where it was: elsewhere it would be another program to the compiler.
    where = None if mesh_of(canvas.open) is None else canvas.open.sharding
    still = jax.device_put(still, where)
    return progress.replace(state=progress.state.replace(canvas=canvas.replace(open=still)))


def filled(canvas: Canvas, sampler: Sampler, params: Params) -> Canvas:
    """Copies of the last row at the end, until a mesh's data axis divides the rows.

    Copies of the last prompt's rows where samples look at each other: their groups stay whole.
    """
    mesh, rows = mesh_of(params), len(canvas.tokens)
    unit = canvas.samples if sampler.couples_samples else 1
    missing = -rows % math.lcm(unit, mesh.shape.get("data", 1) if mesh else 1)
    if not missing:
        return canvas
    return _picked(canvas, np.append(np.arange(rows), rows - unit + np.arange(missing) % unit))


def _picked(canvas: Canvas, rows: np.ndarray) -> Canvas:
    return jax.tree.map(lambda leaf: leaf[rows] if leaf.ndim else leaf, canvas)


def rows_of(
    progress: RunProgress, begun: Canvas, part: Batch, ending: TextEnd
) -> tuple[list[Row], list]:
    """The finished rows of a batch, and (step, prompt, sample) of those that are not numbers."""
    canvas = progress.state.canvas
    real = len(begun.tokens)
    window = lambda columns: to_host(columns)[:real, begun.generation_start :]  # noqa: E731
    tokens, log_p = window(canvas.tokens), window(canvas.log_p)
    noise = tokens == (-1 if begun.mask_id is None else int(begun.mask_id))
    written = window(begun.attend if ending.infill else begun.open) & ~noise
    taken = int(np.sum(to_host(progress.taken)))
    finite = to_host(progress.info.finite)
    rows, bad = [], []
    for at, prompt, sample in pairs(part):
        if not finite[:, at].all():
            bad.append((int(np.argmin(finite[:, at])), prompt, sample))
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
