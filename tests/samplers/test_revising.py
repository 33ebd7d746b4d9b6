"""`revising` against DiffusionGemma's own sampler, every state; then what it could not do."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import at_step, canvas_of, case_of, model

import sake_jax as sj
from registry import ENTRIES
from sake_jax.samplers.loop import advance_until, begin_progress
from tiers import few_quick

NAME, W, V, EOS = "diffusion_gemma", 6, 128, 1
KEY = jax.random.key(5)
CASES = (
    "early_stop_confident",
    "left_padded",
    "early_stop_stable",
    "default_like",
    "two_canvases",
    "eos",
)


def by_step(recorded, left, steps_per_window: int, windows: int):
    """Places records, one for each step that was taken, at the steps of the plan."""
    first = np.cumsum(left == steps_per_window) - 1
    placed = np.zeros((windows * steps_per_window, *recorded.shape[1:]), recorded.dtype)
    placed[first * steps_per_window + steps_per_window - left] = recorded
    return placed


def replayed(golden, case, cache="exact"):
    """The sampler that has the reference's choices, its canvas, and what was recorded."""
    lm = model(NAME)
    args, arrays = case_of(golden, f"{NAME}/sampler_{NAME}", case)
    each, length = args["max_denoising_steps"], args["max_new_tokens"]
    windows, left = length // W, arrays["cur_step"]
    steps = each * windows
    uniform = np.maximum(by_step(arrays["uniform"], left, each, windows), 1e-30)
    gumbel = -np.log(-np.log(uniform.astype(np.float64)))

    # Of the recorded tokens, one row begins each window, and one follows each step.
    begins = np.flatnonzero(left == each) + np.arange(np.sum(left == each))
    random = arrays["random_canvas"]
    after = np.delete(random, begins, axis=0)
    assert len(after) == len(left)
    noise = by_step(after, left, each, windows)

    def tokens(keys, view, vocabulary):
        index = jnp.round(view.progress[0] * steps).astype(jnp.int32)
        return jnp.asarray(noise)[index]

    def gumbels(keys, view, vocabulary):
        index = jnp.round(view.progress[0] * steps).astype(jnp.int32)
        return jnp.asarray(gumbel, jnp.float32)[index]

    sampler = sj.revising(
        lm,
        length=length,
        steps=steps,
        reveal=sj.reveal.entropy_bound(args["entropy_bound"]),
        hot=args["t_max"],
        cold=args["t_min"],
        patience=args.get("stability_threshold", 1),
        doubt=args.get("confidence_threshold", 0.005),
        cache=cache,
        noise=gumbels,
        record="full",
    )
    sampler = sampler.replace(process=sampler.process.replace(tokens=tokens))
    canvas = canvas_of(lm, arrays, length, None)
    firsts = random[begins]
    return sampler, canvas, firsts, arrays, each


def run_from(sampler, canvas, firsts, stop=None):
    """A run that begins with recorded tokens, and what it went through."""
    params = model(NAME).params
    progress = begin_progress(sampler, params, KEY, canvas, trajectory=True)
    start, tokens = canvas.generation_start, progress.state.canvas.tokens
    for at, first in enumerate(firsts):
        tokens = tokens.at[:, start + at * W : start + (at + 1) * W].set(first)
    begun = progress.state.canvas.replace(tokens=tokens)
    progress = progress.replace(state=progress.state.replace(canvas=begun))
    end = jnp.int32(sampler.plan.steps)
    before = np.asarray(tokens)
    after = advance_until(sampler, params, KEY, progress, end, stop)
    return before, after


@pytest.mark.parametrize("case", few_quick(CASES, 2))
def test_every_state_is_the_references(case, golden):
    sampler, canvas, firsts, arrays, each = replayed(golden, case)
    stop = sj.end_tokens([EOS]) if case == "eos" else None
    before, ran = run_from(sampler, canvas, firsts, stop)
    taken = np.flatnonzero(np.asarray(ran.taken))
    left, theirs = arrays["cur_step"], arrays["current_canvas"]
    window = np.cumsum(left == each) - 1
    np.testing.assert_array_equal(taken, window * each + each - left)
    start = canvas.generation_start
    states = np.asarray(ran.tokens)
    best = np.asarray(ran.info.candidates.ids)[..., 0]
    for call, step in enumerate(taken):
        columns = slice(start + window[call] * W, start + (window[call] + 1) * W)
        entered = before if step % each == 0 else states[taken[call - 1]]
        going = ~_finished_before(arrays, call, window)
        assert going.any()
        np.testing.assert_array_equal(entered[going, columns], theirs[call][going])
        np.testing.assert_array_equal(best[step][going], arrays["argmax_canvas"][call][going])
    for row, theirs in enumerate(arrays["sequences"][:, start:]):
        ends = np.flatnonzero(theirs == EOS)
        until = 1 + ends[0] if stop is not None and len(ends) else len(theirs)
        np.testing.assert_array_equal(states[taken[-1]][row, start:][:until], theirs[:until])


def _finished_before(arrays, call, window):
    """(B,) rows that were finished before this call of their window."""
    if call == 0 or window[call] != window[call - 1]:
        return np.zeros(arrays["prompt"].shape[0], bool)
    return arrays["finished_denoising"][call - 1]
