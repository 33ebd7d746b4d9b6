"""The one loop, in three forms: a scan, a while loop that may end early, and a stream.

All of them run the same steps with the same keys, so they write the same tokens.
"""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.core import Canvas
from sake_jax.info import Info
from sake_jax.node import Node
from sake_jax.samplers.noise import uniform_tokens
from sake_jax.samplers.step import Kept, Sampler, State, context, step
from sake_jax.samplers.stop import Stop
from sake_jax.sharding import HIDDEN, constrain, constrain_rows
from sake_jax.typing import Key, Leaf, Params


def prepared(sampler: Sampler, params: Params) -> Params:
    """The parameters as the denoiser wants them in a loop, if it has a wish."""
    prepare = getattr(sampler.denoiser, "prepare", None)
    return params if prepare is None else prepare(params)


def start(sampler: Sampler, params: Params, key: Key, canvas: Canvas, cache: Any = None) -> State:
    """The state before the first step."""
    if canvas.mask_id is None and sampler.process.decides:
        size = sampler.denoiser.tables(params).input.shape[0]
        canvas = canvas.replace(tokens=uniform_tokens(key, canvas, size))
    if canvas.log_p is None:
        canvas = canvas.replace(log_p=jnp.zeros(canvas.tokens.shape, jnp.float32))
    canvas = constrain_rows(canvas, like=params)
    if cache is None and sampler.plan.cached:
        cache = sampler.denoiser.empty_cache(params, *canvas.tokens.shape)
    view = sampler.plan.view(canvas, jnp.int32(0))
    shape, _ = jax.eval_shape(sampler.denoiser.read, params, view, cache)
    features = constrain(jnp.zeros(shape.shape, shape.dtype), HIDDEN, like=params)
    ctx = context(sampler, params, view, features, cache)
    if sampler.reuse:
        cache = Kept(features, jnp.bool_(True))
    return State(canvas, cache, sampler.guidance.init(ctx))


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
    params = prepared(sampler, params)
    state, parts = start(sampler, params, key, canvas, cache), []
    for first, count, reread in sampler.plan.segments:

        def body(state, index, reread=reread):
            state, info = step(sampler, params, key, state, index, reread)
            return state, (info, state.canvas.tokens if trajectory else None)

        state, part = jax.lax.scan(body, state, first + jnp.arange(count))
        parts.append(part)
    info, tokens = jax.tree.map(lambda *part: jnp.concatenate(part), *parts)
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

    Returns the final canvas, the Info of all S steps (zeros for those left out at the end), and
    how many were taken; with `trajectory` also the tokens after each step.

    >>> import sake_jax as sj
    >>> process = sj.identity_process(draws_mask=False)
    >>> sampler = sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(4, 4), process=process)
    >>> params, canvas = sj.testing.toy_params(0), sj.canvas([[1, 2]], 4, mask_id=16)
    >>> sampler = sampler.replace(reveal=sj.reveal.threshold(0.0))  # whatever it is, keep it
    >>> done, info, steps = sj.run_until(sampler, params, jax.random.key(0), canvas)
    >>> int(steps)
    1
    """
    params = prepared(sampler, params)
    trip = depart(sampler, params, key, canvas, cache, stop=stop, trajectory=trajectory)
    for first, count, reread in sampler.plan.segments:
        trip = travel(sampler, params, key, trip, first + count, stop=stop, reread=reread)
    found = (trip.state.canvas, trip.info, trip.taken)
    return (*found, trip.tokens) if trajectory else found


class Trip(Node):
    """A run under way that leaves out steps without work, and what it has seen."""

    state: State
    index: Leaf
    """() the plan's next step."""
    taken: Leaf
    """() how many steps were taken."""
    steps: Leaf
    """(S,) which of the plan's steps they were."""
    info: Info
    tokens: Leaf
    """(S, B, L) after each step, or None."""


def depart(sampler, params, key, canvas, cache=None, *, stop=None, trajectory=False) -> Trip:
    """A trip before its first step, with room for what every step may leave."""
    state = start(sampler, params, key, canvas, cache)
    one = functools.partial(_one, sampler, params, key, stop, 0)
    info = jax.eval_shape(one, state, jnp.int32(0))[1]
    room = lambda leaf: jnp.zeros((sampler.plan.steps, *leaf.shape), leaf.dtype)  # noqa: E731
    steps = jnp.zeros(sampler.plan.steps, jnp.int32)
    tokens = room(state.canvas.tokens) if trajectory else None
    seen = (jax.tree.map(room, info), tokens)
    info, tokens = constrain_rows(seen, (None, "batch"), like=params)
    return Trip(state, jnp.int32(0), jnp.int32(0), steps, info, tokens)


def travel(sampler, params, key, trip: Trip, end, *, stop=None, reread: int = 0) -> Trip:
    """Goes on until the plan's step `end`, or until nothing is open; `params` are prepared."""

    def unfinished(trip: Trip) -> Array:
        canvas = trip.state.canvas
        return (trip.index < end) & jnp.any(canvas.open & canvas.attend)

    def body(trip: Trip) -> Trip:
        state, info = _one(sampler, params, key, stop, reread, trip.state, trip.index)
        put = lambda kept, new: kept.at[trip.taken].set(new)  # noqa: E731
        return trip.replace(
            state=state,
            index=sampler.plan.after(state.canvas, trip.index),
            taken=trip.taken + 1,
            steps=put(trip.steps, trip.index),
            info=jax.tree.map(put, trip.info, info),
            tokens=None if trip.tokens is None else put(trip.tokens, state.canvas.tokens),
        )

    return jax.lax.while_loop(unfinished, body, trip)


def _one(sampler, params, key, stop, reread, state: State, index: Array) -> tuple[State, Info]:
    state, info = step(sampler, params, key, state, index, reread)
    if stop is None:
        return state, info
    canvas = state.canvas
    return state.replace(canvas=canvas.replace(open=canvas.open & ~stop(canvas)[:, None])), info


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
    # Unused parameters stay: they say which mesh it is.
    begin = jax.jit(start, keep_unused=True)
    state = begin(sampler, params, key, canvas, cache)
    for first, count, reread in sampler.plan.segments:
        for at in range(first, first + count, chunk):
            steps = min(chunk, first + count - at)
            state, info = _advance(sampler, params, key, state, jnp.int32(at), steps, reread)
            yield state.canvas, info


@functools.partial(jax.jit, static_argnames=("steps", "reread"))
def _advance(sampler, params, key, state: State, first: Array, steps: int, reread: int):
    params = prepared(sampler, params)

    def body(state, index):
        return step(sampler, params, key, state, index, reread)

    return jax.lax.scan(body, state, first + jnp.arange(steps))
