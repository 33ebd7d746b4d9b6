"""The one loop: `advance` takes one step, and everything that runs a sampler repeats it.

`run` repeats it in a scan, which can be differentiated; `run_until` in a while loop, which leaves
out steps without work; `stream` and `generate` in pieces, to look at the canvas in between. All of
them take the same steps with the same keys, so they write the same tokens.
"""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.core import declared
from sake_jax.info import Info
from sake_jax.node import Node
from sake_jax.samplers.noise import first_tokens
from sake_jax.samplers.sampler import Sampler
from sake_jax.samplers.step import LastRead, RunState, context, step
from sake_jax.samplers.stop import Stop
from sake_jax.sharding import HIDDEN, constrain, constrain_rows
from sake_jax.typing import Key, Leaf, Params
from sake_jax.view import Canvas


def begin(
    sampler: Sampler, params: Params, key: Key, canvas: Canvas, cache: Any = None
) -> RunState:
    """The state before the first step.

    >>> import sake_jax as sj
    >>> process = sj.identity_process(draws_mask=False)
    >>> sampler = sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(4, 4), process=process)
    >>> params, canvas = sj.testing.toy_params(0), sj.canvas([[1, 2]], 4, mask_id=16)
    >>> state = begin(sampler, params, jax.random.key(0), canvas)
    >>> int(state.step), int(state.canvas.open.sum())  # four columns are masked
    (0, 4)
    """
    if canvas.mask_id is None and sampler.process.decides:
        size = sampler.denoiser.tables(params).input.shape[0]
        prior = getattr(sampler.process, "prior", None)
        canvas = canvas.replace(tokens=first_tokens(key, canvas, size, prior))
    if canvas.log_p is None:
        canvas = canvas.replace(log_p=jnp.zeros(canvas.tokens.shape, jnp.float32))
    canvas = constrain_rows(canvas, like=params)
    remembers = declared(sampler.denoiser, "remember") is not None
    if cache is None and (sampler.plan.cached or remembers):
        cache = sampler.denoiser.empty_cache(params, *canvas.tokens.shape)
    view = sampler.plan.view(canvas, jnp.int32(0))
    # Guidances size their state by the features; before the first read these are zeros.
    shape, _ = jax.eval_shape(sampler.denoiser.read, params, view, cache)
    features = constrain(jnp.zeros(shape.shape, shape.dtype), HIDDEN, like=params)
    ctx = context(sampler, params, view, features, None, cache)
    draw = sampler.draw.init(ctx)
    if sampler.reuse:
        cache = LastRead(features, jnp.ones(features.shape[0], bool), view.window_start)
    carried = sampler.process.begin(canvas) if hasattr(sampler.process, "begin") else None
    return RunState(jnp.int32(0), canvas, cache, sampler.guidance.init(ctx), draw, carried)


def advance(
    sampler: Sampler, params: Params, key: Key, state: RunState, stop: Stop | None = None
) -> tuple[RunState, Info]:
    """One step; rows that `stop` finds finished are closed. `params` are prepared.

    >>> import sake_jax as sj
    >>> process = sj.identity_process(draws_mask=False)
    >>> sampler = sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(4, 4), process=process)
    >>> params, canvas = sj.testing.toy_params(0), sj.canvas([[1, 2]], 4, mask_id=16)
    >>> key = jax.random.key(0)
    >>> state, info = advance(sampler, params, key, begin(sampler, params, key, canvas))
    >>> int(state.step), int(state.canvas.open.sum())  # one of four columns is written
    (1, 3)
    """
    state, info = step(sampler, params, key, state)
    if stop is None:
        return state, info
    canvas = state.canvas
    return state.replace(canvas=canvas.replace(open=canvas.open & ~stop(canvas)[:, None])), info


def prepared(sampler: Sampler, params: Params) -> Params:
    """The parameters as the denoiser wants them in a loop, if it has a wish."""
    prepare = declared(sampler.denoiser, "prepare")
    return params if prepare is None else prepare(params)


def _scan(
    sampler: Sampler, params: Params, key: Key, state: RunState, steps: int, trajectory: bool
) -> tuple[RunState, tuple[Info, Array | None]]:
    """So many steps, one after the other, none left out."""
    params = prepared(sampler, params)

    def body(state: RunState, _: None) -> tuple[RunState, tuple[Info, Array | None]]:
        state, info = advance(sampler, params, key, state)
        return state, (info, state.canvas.tokens if trajectory else None)

    return jax.lax.scan(body, state, None, length=steps)


@functools.partial(jax.jit, static_argnames="trajectory")
def run(
    sampler: Sampler,
    params: Params,
    key: Key,
    canvas: Canvas,
    cache: Any = None,
    *,
    trajectory: bool = False,
) -> Any:
    """Denoises a canvas: one compiled program for every number, prompt and key.

    Returns the final canvas and the Info of all steps, steps first; with `trajectory` also
    the tokens after each step, (S, B, L).

    >>> import sake_jax as sj
    >>> process = sj.identity_process(draws_mask=False)
    >>> sampler = sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(4, 4), process=process)
    >>> params, canvas = sj.testing.toy_params(0), sj.canvas([[1, 2]], 4, mask_id=16)
    >>> done, info = sj.run(sampler, params, jax.random.key(0), canvas)
    >>> done.tokens.shape, info.entropy.shape
    ((1, 6), (4, 1))
    """
    state = begin(sampler, params, key, canvas, cache)
    state, (info, tokens) = _scan(sampler, params, key, state, sampler.plan.steps, trajectory)
    return (state.canvas, info, tokens) if trajectory else (state.canvas, info)


@functools.partial(jax.jit, static_argnames="trajectory")
def run_until(
    sampler: Sampler,
    params: Params,
    key: Key,
    canvas: Canvas,
    cache: Any = None,
    *,
    stop: Stop | None = None,
    trajectory: bool = False,
) -> Any:
    """As `run`, but steps without work are left out, and rows end where `stop` says.

    A block ends as soon as nothing in it is open, which is where `reveal.threshold` saves time.
    A row that has stopped is closed: what it has not written yet stays noise.

    Returns the final canvas, the Info of all S steps of the plan (zeros for those left out), and
    how many were taken; with `trajectory` also the tokens after each step of the plan.

    >>> import sake_jax as sj
    >>> process = sj.identity_process(draws_mask=False)
    >>> sampler = sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(4, 4), process=process)
    >>> params, canvas = sj.testing.toy_params(0), sj.canvas([[1, 2]], 4, mask_id=16)
    >>> sampler = sampler.replace(reveal=sj.reveal.threshold(0.0))  # whatever it is, keep it
    >>> done, info, steps = sj.run_until(sampler, params, jax.random.key(0), canvas)
    >>> int(steps)
    1
    """
    progress = begin_progress(sampler, params, key, canvas, cache, trajectory=trajectory)
    end = jnp.int32(sampler.plan.steps)
    progress = advance_until(sampler, params, key, progress, end, stop)
    done = (progress.state.canvas, progress.info, jnp.sum(progress.taken))
    return (*done, progress.trajectory()) if trajectory else done


class RunProgress(Node):
    """A run that may leave out steps, so far. Its records are by the plan's S steps."""

    state: RunState
    taken: Leaf
    """(S,) which steps were taken."""
    info: Info
    """(S, B, ...) zeros, and `finite`, where a step was not taken."""
    tokens: Leaf
    """(S, B, L) after each step that was taken, or None."""

    def trajectory(self) -> Array:
        """(S, B, L) the tokens after each step: a step that was not taken changed nothing."""
        last = jax.lax.cummax(jnp.where(self.taken, jnp.arange(self.taken.size), 0))
        return self.tokens[last]


# Parameters that a beginning does not use stay its arguments: they say which mesh it is for.
@functools.partial(jax.jit, static_argnames="trajectory", keep_unused=True)
def begin_progress(
    sampler: Sampler,
    params: Params,
    key: Key,
    canvas: Canvas,
    cache: Any = None,
    *,
    trajectory: bool = False,
) -> RunProgress:
    """A run before its first step, with room for what every step may leave."""
    state, steps = begin(sampler, params, key, canvas, cache), sampler.plan.steps
    _, info = jax.eval_shape(functools.partial(advance, sampler, params, key), state)
    info = jax.tree.map(lambda leaf: jnp.zeros((steps, *leaf.shape), leaf.dtype), info)
    info = info.replace(finite=jnp.ones_like(info.finite))
    tokens = state.canvas.tokens
    tokens = jnp.broadcast_to(tokens[None], (steps, *tokens.shape)) if trajectory else None
    info, tokens = constrain_rows((info, tokens), (None, "batch"), like=params)
    return RunProgress(state, jnp.zeros(steps, bool), info, tokens)


@functools.partial(jax.jit, donate_argnames="progress")
def advance_until(
    sampler: Sampler,
    params: Params,
    key: Key,
    progress: RunProgress,
    end: Array,
    stop: Stop | None = None,
) -> RunProgress:
    """Goes on until the plan's step `end`, or until nothing is open."""
    params = prepared(sampler, params)

    def unfinished(progress: RunProgress) -> Array:
        canvas = progress.state.canvas
        return (progress.state.step < end) & jnp.any(canvas.open & canvas.attend)

    def body(progress: RunProgress) -> RunProgress:
        at = progress.state.step
        state, info = advance(sampler, params, key, progress.state, stop)
        put = lambda record, new: record.at[at].set(new)  # noqa: E731
        return RunProgress(
            state=state.replace(step=sampler.plan.next_step(state.canvas, at)),
            taken=progress.taken.at[at].set(True),
            info=jax.tree.map(put, progress.info, info),
            tokens=None if progress.tokens is None else put(progress.tokens, state.canvas.tokens),
        )

    return jax.lax.while_loop(unfinished, body, progress)


_begin = jax.jit(begin, keep_unused=True)
_scan_steps = jax.jit(_scan, static_argnames=("steps", "trajectory"))


def stream(
    sampler: Sampler,
    params: Params,
    key: Key,
    canvas: Canvas,
    cache: Any = None,
    *,
    chunk: int = 1,
) -> Iterator[tuple[Canvas, Info]]:
    """As `run`, but yields the canvas and the Info after every `chunk` steps, for display.

    Each chunk is the same compiled program; nothing calls back from inside it.

    >>> import sake_jax as sj
    >>> process = sj.identity_process(draws_mask=False)
    >>> sampler = sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(4, 4), process=process)
    >>> params, canvas = sj.testing.toy_params(0), sj.canvas([[1, 2]], 4, mask_id=16)
    >>> steps = sj.stream(sampler, params, jax.random.key(0), canvas, chunk=2)
    >>> [int(now.open.sum()) for now, info in steps]  # columns that are still masked
    [2, 0]
    """
    state = _begin(sampler, params, key, canvas, cache)
    for at in range(0, sampler.plan.steps, chunk):
        steps = min(chunk, sampler.plan.steps - at)
        state, (info, _) = _scan_steps(sampler, params, key, state, steps, False)
        yield state.canvas, info
