"""Several continuations of each sample, of which a diverse set is kept."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.samplers import greedy_map, run_selected
from sake_jax.testing import ToyDenoiser, toy_params
from tiers import few_quick

KEY, PARAMS = jax.random.key(0), toy_params(0)
greedy = jax.jit(greedy_map, static_argnums=2)


def brute_force(kernel, group, groups):
    """The greedy choice with a determinant for every candidate of every round."""
    chosen = []
    for _ in range(groups):
        taken = {group[i] for i in chosen}
        free = [i for i in range(len(group)) if group[i] not in taken]
        sets = {i: [*chosen, i] for i in free}
        volumes = {i: np.linalg.det(kernel[np.ix_(items, items)]) for i, items in sets.items()}
        chosen.append(max(free, key=lambda i, volumes=volumes: volumes[i]))
    return sorted(chosen, key=lambda i: group[i])


def test_greedy_map_is_what_determinants_say():
    random = np.random.default_rng(0)
    group = np.repeat(np.arange(4), 3)
    for weight in (0.0, 0.5, 3.0):
        for _ in range(20):
            rows = random.normal(size=(12, 5))
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            score = random.uniform(0.1, 1, 12)
            kernel = weight * rows @ rows.T + np.diag(score)
            found = greedy(jnp.asarray(kernel, jnp.float32), jnp.asarray(group), 4)
            assert found.tolist() == brute_force(kernel, group, 4)
            if weight == 0:
                best = [3 * g + int(np.argmax(score[3 * g : 3 * g + 3])) for g in range(4)]
                assert found.tolist() == best


@pytest.mark.slow
def test_greedy_map_is_near_the_best_choice():
    """Of all choices, one item of each group: the greedy one is never much worse."""
    random = np.random.default_rng(1)
    group = np.repeat(np.arange(3), 3)
    for _ in range(20):
        rows = random.normal(size=(9, 4))
        kernel = rows @ rows.T + np.diag(random.uniform(0.1, 1, 9))
        found = greedy(jnp.asarray(kernel, jnp.float32), jnp.asarray(group), 3)

        def volume(chosen, kernel=kernel):
            return np.linalg.slogdet(kernel[np.ix_(chosen, chosen)])[1]

        best = max(volume([a, 3 + b, 6 + c]) for a, b, c in itertools.product(range(3), repeat=3))
        assert best - volume(found.tolist()) < np.log(6)  # at worst 1/(k!) of the volume


def canvas_of(samples=3, prompts=2, length=4):
    return sj.canvas([[1, 2], [3]][:prompts], length, mask_id=16, samples=samples)


SAMPLER = sj.masked(ToyDenoiser(), length=4, guidance=sj.forbid([16]))


def test_without_continuations_it_is_a_run():
    done, _ = sj.run(SAMPLER, PARAMS, KEY, canvas_of())
    for options in ({"expand": 3, "choices": 0}, {"expand": 1}):
        made = run_selected(SAMPLER, PARAMS, KEY, canvas_of(), **options)
        np.testing.assert_array_equal(made.canvas.tokens, done.tokens)
        assert made.evaluations == 4


@pytest.mark.parametrize("choices", few_quick([1, None], 1))
def test_what_is_counted_is_what_is_evaluated(choices):
    calls = []

    class Counting(ToyDenoiser):
        def read(self, params, view, cache):
            jax.debug.callback(lambda: calls.append(view.tokens.shape[0]))
            return super().read(params, view, cache)

    sampler = SAMPLER.replace(denoiser=Counting())
    made = run_selected(sampler, PARAMS, KEY, canvas_of(), expand=5, choices=choices)
    jax.block_until_ready(made.canvas.tokens)
    jax.effects_barrier()
    assert sum(calls) == made.evaluations * 6
    assert made.picks.shape == (choices or 3, 6)


def surest_of_each(sampler, canvas, expand):
    """The first choice by hand: one step of every continuation, then the surest of each sample."""
    rows = canvas.tokens.shape[0]
    wide = jax.tree.map(lambda x: jnp.repeat(x, expand, axis=0) if jnp.ndim(x) else x, canvas)
    wide = wide.replace(
        sample_id=wide.sample_id * expand + jnp.tile(jnp.arange(expand), rows),
        samples=canvas.samples * expand,
    )
    state = sj.samplers.begin(sampler, PARAMS, KEY, wide)
    state, _ = sj.samplers.advance(sampler, PARAMS, KEY, state)
    _, info = sj.samplers.advance(sampler, PARAMS, KEY, state)  # the entropy before this step
    return np.argmin(np.asarray(info.entropy).reshape(rows, expand), axis=1)


@pytest.mark.slow
def test_without_weight_each_sample_keeps_its_surest():
    sampler = sj.masked(ToyDenoiser(), length=4)
    made = run_selected(sampler, PARAMS, KEY, canvas_of(), expand=4, weight=0.0, choices=1)
    np.testing.assert_array_equal(made.picks[0], surest_of_each(sampler, canvas_of(), 4))


@pytest.mark.slow
def test_weight_makes_samples_less_alike():
    def distinct(weight):
        sampler = sj.masked(ToyDenoiser(), length=6, draw=sj.temperature(0.5))
        options = {"expand": 4, "weight": weight}
        canvas = canvas_of(samples=8, length=6)
        tokens = run_selected(sampler, PARAMS, KEY, canvas, **options).canvas.tokens
        rows = np.asarray(tokens)[:, 2:].reshape(2, 8, 6)
        return np.mean(rows[:, :, None] != rows[:, None])

    assert distinct(50.0) > distinct(0.0) + 0.05


@pytest.mark.slow
def test_prompts_do_not_see_each_other():
    both = run_selected(SAMPLER, PARAMS, KEY, canvas_of(), expand=3)
    one = run_selected(SAMPLER, PARAMS, KEY, canvas_of(prompts=1), expand=3)
    np.testing.assert_array_equal(both.canvas.tokens[:3], one.canvas.tokens)


def test_mistakes_are_explained():
    cached = sj.masked(ToyDenoiser(), length=4, cache="dual")
    with pytest.raises(ValueError, match="choosing is for plans without a cache"):
        run_selected(cached, PARAMS, KEY, canvas_of())
    with pytest.raises(ValueError, match="choices must be at most 3"):
        run_selected(SAMPLER, PARAMS, KEY, canvas_of(), choices=4)
    with pytest.raises(ValueError, match="expand must be at least 1"):
        run_selected(SAMPLER, PARAMS, KEY, canvas_of(), expand=0)
    with pytest.raises(ValueError, match="weight must be at least 0"):
        run_selected(SAMPLER, PARAMS, KEY, canvas_of(), weight=-1.0)
