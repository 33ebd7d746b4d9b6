"""Golden runs of the original samplers, and how to replay them."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.samplers.reveal import highest


@functools.cache
def model(name: str) -> sj.LanguageModel:
    return sj.load(GOLDENS / name)


def case_of(golden, file: str, name: str):
    """The arguments of a recorded run, and its arrays."""
    args = golden(f"{file}.json")["cases"][name]["args"]
    arrays = golden(f"{file}.npz")
    return args, {k.split("/")[1]: v for k, v in arrays.items() if k.split("/")[0] == name}


def canvas_of(lm, arrays, length: int, mask_id: int) -> sj.Canvas:
    """The canvas the original started from; padding is on the left."""
    attend = arrays.get("attention_mask", np.ones_like(arrays["prompt"]))
    prompts = [row[keep == 1].tolist() for row, keep in zip(arrays["prompt"], attend, strict=True)]
    return sj.canvas(
        prompts,
        length,
        mask_id=mask_id,
        pad_id=int(arrays["prompt"][attend == 0][0]) if (attend == 0).any() else None,
        positions=lm.config.positions,
    )


def at_step(recorded, view, steps: int):
    """What was recorded at this step, for the window's columns."""
    index = jnp.round(view.progress[0] * steps).astype(jnp.int32)
    return view.window(jnp.asarray(recorded, jnp.float32)[index])


def gumbel_from(uniform, steps: int):
    """A noise source that replays recorded uniforms, of shape (steps, B, L, V)."""
    noise = -np.log(-np.log(uniform.astype(np.float64)))
    return lambda keys, view, vocabulary: at_step(noise, view, steps)


def order_from(scores, steps: int):
    """A reveal rule that replays recorded scores, of shape (steps, B, L)."""
    return lambda logits, drawn, view, key: highest(at_step(scores, view, steps), view)


def distinct(states):
    """States without repetitions: some originals call the model once more than they need."""
    states = np.asarray(states)
    changed = [True, *(np.any(a != b) for a, b in itertools.pairwise(states))]
    return states[changed]


def states_of(sampler, params, canvas):
    """All states of a run with `run`, the first included."""
    *_, states = sj.run(sampler, params, jax.random.key(0), canvas, trajectory=True)
    return np.concatenate([np.asarray(canvas.tokens)[None], states])


def states_until(sampler, params, canvas):
    """The states of a run with `run_until` that steps have changed, the first included."""
    key = jax.random.key(0)
    _, info, taken, states = sj.run_until(sampler, params, key, canvas, trajectory=True)
    changed = np.any(np.asarray(info.revealed) > 0, axis=1)
    assert changed.sum() <= int(taken) <= len(changed)
    return np.concatenate([np.asarray(canvas.tokens)[None], np.asarray(states)[changed]])
