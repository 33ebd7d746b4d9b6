"""The one loop, in three forms: a scan, a while loop that may end early, and a stream.

All of them run the same steps with the same keys, so they write the same tokens.
"""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.core import Canvas, Info
from sake_jax.samplers.step import Kept, Sampler, State, context, step
from sake_jax.samplers.stop import Stop
from sake_jax.typing import Key, Params


def start(sampler: Sampler, params: Params, canvas: Canvas, cache: Any = None) -> State:
    """The state before the first step."""
    if cache is None and sampler.plan.cached:
        cache = sampler.denoiser.empty_cache(params, *canvas.tokens.shape)
    view = sampler.plan.view(canvas, jnp.int32(0))
    shape, _ = jax.eval_shape(sampler.denoiser.read, params, view, cache)
    features = jnp.zeros(shape.shape, shape.dtype)
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
    """
    state, parts = start(sampler, params, canvas, cache), []
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
    """
    state = start(sampler, params, canvas, cache)

    def one(state: State, index: Array, reread: int):
        state, info = step(sampler, params, key, state, index, reread)
        if stop is not None:
            ended = stop(state.canvas)[:, None]
            state = state.replace(canvas=state.canvas.replace(open=state.canvas.open & ~ended))
        return state, (info, state.canvas.tokens if trajectory else None)

    shapes = jax.eval_shape(functools.partial(one, reread=0), state, jnp.int32(0))[1]
    room = lambda leaf: jnp.zeros((sampler.plan.steps, *leaf.shape), leaf.dtype)  # noqa: E731
    kept, taken, index = jax.tree.map(room, shapes), jnp.int32(0), jnp.int32(0)
    for first, count, reread in sampler.plan.segments:

        def unfinished(carry, end=first + count):
            state, _, _, index = carry
            return (index < end) & jnp.any(state.canvas.open & state.canvas.attend)

        def body(carry, reread=reread):
            state, kept, taken, index = carry
            state, found = one(state, index, reread)
            kept = jax.tree.map(lambda all_, new: all_.at[taken].set(new), kept, found)
            return state, kept, taken + 1, sampler.plan.after(state.canvas, index)

        carry = (state, kept, taken, jnp.maximum(index, first))
        state, kept, taken, index = jax.lax.while_loop(unfinished, body, carry)
    info, tokens = kept
    found = (state.canvas, info, taken)
    return (*found, tokens) if trajectory else found


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
    """
    state = jax.jit(start)(sampler, params, canvas, cache)
    for first, count, reread in sampler.plan.segments:
        for at in range(first, first + count, chunk):
            steps = min(chunk, first + count - at)
            state, info = _advance(sampler, params, key, state, jnp.int32(at), steps, reread)
            yield state.canvas, info


@functools.partial(jax.jit, static_argnames=("steps", "reread"))
def _advance(sampler, params, key, state: State, first: Array, steps: int, reread: int):
    def body(state, index):
        return step(sampler, params, key, state, index, reread)

    return jax.lax.scan(body, state, first + jnp.arange(steps))
