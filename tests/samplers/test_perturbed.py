"""Noise on a prompt's embeddings: a denoiser around a denoiser."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import model

import sake_jax as sj
from sake_jax.testing import ToyDenoiser, toy_params, toy_view

KEY = jax.random.key(0)
SCENE = toy_params(0), toy_view(0)


@jax.jit
def read(denoiser, params, view):
    return denoiser.read(params, view, None)[0]


@jax.jit
def shift_of(denoiser, params, view):
    return denoiser.perturbation(params, view)


def test_without_noise_it_reads_as_ever():
    plain = read(ToyDenoiser(), *SCENE)
    for sigma, mix in ((0.0, 1.0), (0.5, 0.0), (sj.piecewise({0.0: 0.0}), 1.0)):
        noisy = sj.perturbed(ToyDenoiser(), sigma, mix=mix)
        np.testing.assert_array_equal(read(noisy, *SCENE), plain)
    assert not np.allclose(read(sj.perturbed(ToyDenoiser(), 0.5), *SCENE), plain, atol=0.01)


def test_embeddings_of_the_prompt_move_and_keep_their_length():
    params, view = SCENE
    shift = np.asarray(shift_of(sj.perturbed(ToyDenoiser(), 0.5), params, view))
    given = np.asarray(view.prompt & view.attend)
    assert (np.abs(shift[given]).max(axis=-1) > 0.01).all()
    assert np.abs(shift[~given]).max() == 0
    plain = np.asarray(params["input"][view.tokens])
    lengths = np.linalg.norm(plain + shift, axis=-1)
    np.testing.assert_allclose(lengths, np.linalg.norm(plain, axis=-1), rtol=1e-5)
    half = np.asarray(shift_of(sj.perturbed(ToyDenoiser(), 0.5, mix=0.5), params, view))
    np.testing.assert_allclose(half, shift / 2, atol=1e-6)


def test_noise_belongs_to_a_row_a_step_and_a_key():
    params, view = SCENE

    def shift(view, **options):
        return np.asarray(shift_of(sj.perturbed(ToyDenoiser(), 0.5, **options), params, view))

    alone = jax.tree.map(lambda leaf: leaf[2:3] if leaf.ndim else leaf, view)
    np.testing.assert_allclose(shift(alone), shift(view)[2:3], rtol=1e-5)
    later = view.replace(progress=view.progress + 0.05)
    assert not np.allclose(shift(later), shift(view), atol=1e-3)
    np.testing.assert_array_equal(shift(later, fresh=False), shift(view, fresh=False))
    assert not np.allclose(shift(view, key=jax.random.key(1)), shift(view), atol=1e-3)
    same = view.replace(sample_id=jnp.zeros_like(view.canvas.sample_id))
    assert not np.allclose(shift(same), shift(view), atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["none", "dual"])
def test_samples_of_a_prompt_differ_at_temperature_zero(cache):
    lm = model("llada")
    cold = sj.masked(lm, length=8, block=4, draw=sj.temperature(0.0), cache=cache)
    noisy = cold.replace(denoiser=sj.perturbed(lm, sj.linear(2.0, 0.0)))

    def texts(sampler, **options):
        made = sj.generate(lm, sampler, [[5, 6, 7, 8]], samples=4, key=KEY, **options)
        return np.asarray(made.tokens)

    same, apart = texts(cold), texts(noisy)
    assert len({tuple(row) for row in same.reshape(4, -1).tolist()}) == 1
    assert len({tuple(row) for row in apart.reshape(4, -1).tolist()}) > 1
    np.testing.assert_array_equal(apart, texts(noisy, batch=2))
    silent = cold.replace(denoiser=sj.perturbed(lm, 0.0))
    np.testing.assert_array_equal(same, texts(silent))


@pytest.mark.slow
def test_a_dit_reads_it_too():
    lm = model("mdlm")
    sampler = sj.masked(lm, length=8, draw=sj.temperature(0.0))
    canvas = sj.canvas([[5, 6, 7]], 8, mask_id=lm.config.mask_id, samples=4)
    tokens = {}
    for sigma in (0.0, 2.0):
        noisy = sampler.replace(denoiser=sj.perturbed(lm, sigma))
        done, _ = sj.run(noisy, lm.params, KEY, canvas)
        tokens[sigma] = {tuple(row) for row in done.tokens.tolist()}
    assert len(tokens[0.0]) == 1
    assert len(tokens[2.0]) > 1


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match="sigma must be at least 0"):
        sj.perturbed(ToyDenoiser(), -0.1)
    with pytest.raises(ValueError, match="mix must be at most 1"):
        sj.perturbed(ToyDenoiser(), 0.1, mix=2.0)
    with pytest.raises(ValueError, match="perturbed must get a model or a denoiser"):
        sj.perturbed("llada")

    class Deaf(ToyDenoiser):
        reads_perturbation = False

    with pytest.raises(
        ValueError, match=r"needs a denoiser that reads view.perturbation, got 'Deaf'"
    ):
        sj.perturbed(Deaf(), 0.1)
    plan = sj.blocks(4, 4)
    with pytest.raises(ValueError, match="reuse=True needs a denoiser that does not look at"):
        sj.sampler(sj.perturbed(ToyDenoiser()), plan, reuse=True)
