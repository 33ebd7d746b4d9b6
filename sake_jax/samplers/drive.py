"""The one loop: a jitted scan of the one step."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from sake_jax.core import Canvas
from sake_jax.samplers.step import Sampler, State, context, step
from sake_jax.typing import Key, Params


def start(sampler: Sampler, params: Params, canvas: Canvas, cache=None) -> State:
    """The state before the first step."""
    view = sampler.plan.view(canvas, jnp.int32(0))
    features, _ = jax.eval_shape(sampler.denoiser.read, params, view, cache)
    ctx = context(sampler, params, view, jnp.zeros(features.shape, features.dtype), cache)
    return State(canvas, cache, sampler.guidance.init(ctx))


@functools.partial(jax.jit, static_argnames="trajectory")
def run(
    sampler: Sampler,
    params: Params,
    key: Key,
    canvas: Canvas,
    cache=None,
    *,
    trajectory: bool = False,
) -> Any:
    """Denoises a canvas: one compiled program for every number, prompt and key.

    Returns the final canvas and the Info of all steps, steps first; with `trajectory` also
    the tokens after each step, (S, B, L).
    """

    def body(state, index):
        state, info = step(sampler, params, key, state, index)
        return state, (info, state.canvas.tokens if trajectory else None)

    indices = jnp.arange(sampler.plan.steps)
    state, (info, tokens) = jax.lax.scan(body, start(sampler, params, canvas, cache), indices)
    return (state.canvas, info, tokens) if trajectory else (state.canvas, info)
