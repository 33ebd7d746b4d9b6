"""Rows that a mesh does not divide: `generate` adds some and drops them."""

import numpy as np
import pytest

import meshes
import sake_jax as sj
from sake_jax.generation.batch import filled
from sake_jax.samplers import loop
from traces import programs

PROMPTS = [[1, 2, 3], [4, 5, 6, 7], [8, 9]]
LOOP = loop.begin_progress, loop.advance_until


def test_rows_are_added_until_they_divide():
    lm = meshes.load("llada", (4, 1, 2))
    canvas = sj.canvas(PROMPTS[:2], 4, mask_id=lm.config.mask_id, samples=3)
    alone = sj.masked(lm, length=4)
    six = np.asarray(canvas.tokens)
    more = filled(canvas, alone, lm.params)
    np.testing.assert_array_equal(more.tokens, six[[0, 1, 2, 3, 4, 5, 5, 5]])
    np.testing.assert_array_equal(more.sample_id, [0, 1, 2, 0, 1, 2, 2, 2])
    together = sj.masked(lm, length=4, guidance=sj.sake(1.0, scope="batch"))
    whole = filled(canvas, together, lm.params)
    np.testing.assert_array_equal(whole.prompt_id, np.repeat([0, 1, 1, 1], 3))
    assert filled(whole, together, lm.params) is whole
    assert filled(canvas, alone, meshes.load("llada").params) is canvas


def test_generate_on_a_mesh_gives_the_same_texts_and_compiles_once():
    alone, spread = meshes.load("llada"), meshes.load("llada", (4, 1, 2))
    sampler = sj.masked(alone, length=4, draw=sj.temperature(0.9))
    options = {"key": meshes.KEY, "samples": 2, "batch": 6, "trajectory": True}
    expected = sj.generate(alone, sampler, PROMPTS, **options)
    before, seen = programs(*LOOP), []
    watch = lambda canvas: seen.append(canvas.tokens.shape)  # noqa: E731
    found = sj.generate(spread, sampler, PROMPTS, watch=watch, **options)
    assert np.subtract(programs(*LOOP), before).tolist() == [1, 1], "each step the same program"
    assert seen == [(6, 12)] * 4, "nobody sees the rows that were added"
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_array_equal(found.trajectory, expected.trajectory)
    np.testing.assert_allclose(found.info.entropy, expected.info.entropy, atol=1e-4)
    again = sj.generate(spread, sampler, [[9, 8, 7], [6], [5, 4]], **options)
    assert np.subtract(programs(*LOOP), before).tolist() == [1, 1]
    assert (again.tokens != found.tokens).any()


@pytest.mark.slow
def test_samples_that_repel_each_other_stay_together():
    alone, spread = meshes.load("llada"), meshes.load("llada", (4, 1, 2))
    guidance = sj.sake(1.0, scope="batch", self_term=0.0)
    sampler = sj.masked(alone, length=4, guidance=guidance, cache="dual")
    options = {"key": meshes.KEY, "samples": 3, "stop": [7]}
    expected = sj.generate(alone, sampler, PROMPTS[:2], **options)
    found = sj.generate(spread, sampler, PROMPTS[:2], **options)
    np.testing.assert_array_equal(found.tokens, expected.tokens)


@pytest.mark.slow
def test_a_stream_on_a_mesh_is_one_program():
    lm = meshes.load("llada", (2, 2, 2))
    sampler = sj.masked(lm, length=8, block=4, cache="dual", draw=sj.temperature(0.9))
    canvas = meshes.canvas_for(lm)
    (before,) = programs(loop._scan_steps)
    *_, (last, _) = sj.stream(sampler, lm.params, meshes.KEY, canvas, chunk=2)
    assert programs(loop._scan_steps) == [before + 1]
    np.testing.assert_array_equal(
        last.tokens, sj.run(sampler, lm.params, meshes.KEY, canvas)[0].tokens
    )
