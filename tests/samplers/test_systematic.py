"""Draws that samples of a prompt share out: each sample's law stays, together they cover more."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax import reveal
from sake_jax.samplers.together import alike, invert, lattice, spaced
from sake_jax.testing import ToyDenoiser, toy_params
from tiers import few_quick

GRID = 10_000
CHANCES = np.array([0.0, 0.37, 0.0, 0.05, 0.31, 0.27, 0.0])


def test_every_sample_s_law_is_exact_by_enumeration():
    """All starts on a fine grid, for every rank of every size: shares are the chances."""
    starts = (np.arange(GRID) + 0.5) / GRID
    for size in (1, 2, 5, 8):
        numbers = spaced(
            jnp.asarray(starts, jnp.float32)[:, None],
            jnp.arange(size, dtype=jnp.float32)[None],
            jnp.float32(size),
        )
        chances = jnp.broadcast_to(jnp.asarray(CHANCES, jnp.float32), (GRID, size, 7))
        tokens = np.asarray(invert(chances, numbers))
        hit = tokens[..., None] == np.arange(7)
        for rank in range(size):
            np.testing.assert_allclose(hit[:, rank].mean(axis=0), CHANCES, atol=2 / GRID)
        # Together, for every start: as often as it is due, rounded up or down.
        counts = hit.sum(axis=1)
        assert (counts >= np.floor(size * CHANCES - 1e-3)).all()
        assert (counts <= np.ceil(size * CHANCES + 1e-3)).all()


def test_nothing_of_chance_zero_is_drawn():
    edges = jnp.asarray([0.0, 1.0, np.nextafter(np.float32(1), np.float32(0))], jnp.float32)
    tokens = invert(jnp.broadcast_to(jnp.asarray(CHANCES, jnp.float32), (3, 7)), edges)
    assert tokens.tolist() == [1, 5, 5]


def view_of(tokens, samples):
    canvas = sj.canvas([[1]] * (len(tokens) // samples), 2, mask_id=9, samples=samples)
    canvas = canvas.replace(tokens=canvas.tokens.at[:, 1:].set(jnp.asarray(tokens)))
    return sj.blocks(2, 2).view(canvas, jnp.int32(0))


def test_rows_that_are_alike_have_evenly_spaced_numbers():
    view = view_of([[9, 9], [9, 9], [3, 9], [9, 9], [9, 9], [9, 9], [9, 9], [9, 9]], samples=4)
    same = alike(view)
    assert same[0].sum(axis=1).tolist() == [3, 3, 1, 3]
    assert same[1].all()
    numbers = lattice(jax.random.split(jax.random.key(3), 8), view, 5, same)
    numbers = np.asarray(numbers).reshape(2, 4, 5)
    for group in (numbers[0, [0, 1, 3]], numbers[1]):
        gaps = np.diff(np.sort(group, axis=0), axis=0)
        np.testing.assert_allclose(gaps, 1 / len(group), atol=1e-6)
    ranks = np.argsort(numbers[1], axis=0)
    assert len({tuple(order) for order in ranks.T}) > 1, "another order for each number"
    apart = alike(view, jnp.asarray([[True], [False]] * 4))
    assert apart[1].sum(axis=1).tolist() == [2, 2, 2, 2]


class Small(ToyDenoiser):
    """Four tokens and a mask that is never drawn."""

    def head(self, params, rows):
        banned = jnp.where(jnp.arange(5) == 4, -1e30, 0.0)[None, None]
        return super().head(params, rows) + banned


SMALL = toy_params(5, vocabulary=5, width=3)
PROMPTS, SAMPLES = 4_000, 4


def final(prompts=PROMPTS, samples=SAMPLES, **options):
    """The two written tokens of each sample of each prompt, which are all the same prompt."""
    options = {"draw": sj.temperature(0.7), "reveal": reveal.leftmost} | options
    sampler = sj.masked(Small(), length=2, **options)
    canvas = sj.canvas([[1]] * prompts, 2, mask_id=4, samples=samples)
    done, _ = sj.run(sampler, SMALL, jax.random.key(0), canvas)
    return np.asarray(done.tokens)[:, 1:].reshape(prompts, samples, 2)


def left_to_right_law():
    """The chance of each pair of tokens, from the network itself."""

    def chances(first, second, column):
        canvas = sj.canvas([[1]], 2, mask_id=4)
        canvas = canvas.replace(tokens=jnp.asarray([[1, first, second]]))
        view = sj.blocks(2, 2).view(canvas, jnp.int32(0))
        features, _ = Small().read(SMALL, view, None)
        return jax.nn.softmax(Small().head(SMALL, features)[0, column] / 0.7)

    first = np.asarray(chances(4, 4, 1))
    law = {}
    for a in range(4):
        second = np.asarray(chances(a, 4, 2))
        for b in range(4):
            law[a, b] = float(first[a] * second[b])
    return law


def test_whole_samples_have_the_model_s_own_law():
    """So that what one sample solves on average cannot change."""
    law, texts = left_to_right_law(), final(noise=sj.systematic())
    bound = float(np.sqrt(np.log(2e9) / (2 * PROMPTS)))
    for sample in range(SAMPLES):
        for pair in itertools.product(range(4), repeat=2):
            share = np.mean((texts[:, sample] == pair).all(axis=1))
            assert abs(share - law[pair]) < bound


ORDERS = [reveal.confidence, reveal.random, reveal.tempered(1.0)]


@pytest.mark.parametrize("order", few_quick(ORDERS, 0))
def test_samples_of_a_prompt_cover_more(order):
    def distinct(**options):
        texts = final(prompts=1_000, reveal=order, **options)
        return np.mean([len({tuple(text) for text in samples.tolist()}) for samples in texts])

    assert distinct(noise=sj.systematic()) > distinct() + 0.1


def test_alike_samples_draw_a_token_as_often_as_it_is_due():
    law = left_to_right_law()
    first = np.array([sum(law[a, b] for b in range(4)) for a in range(4)])
    texts = final(prompts=50, samples=16, noise=sj.systematic())
    counts = (texts[:, :, :1] == np.arange(4)).sum(axis=1)
    assert (counts >= np.floor(16 * first - 1e-3)).all()
    assert (counts <= np.ceil(16 * first + 1e-3)).all()


@pytest.mark.slow
def test_a_greedy_step_and_one_sample_are_as_ever():
    cold = final(prompts=4, draw=sj.temperature(0.0))
    also = final(prompts=4, draw=sj.temperature(0.0), noise=sj.systematic())
    np.testing.assert_array_equal(cold, also)
    alone = final(prompts=8, samples=1, noise=sj.systematic())
    assert len({tuple(text) for text in alone[:, 0].tolist()}) > 1
    sampler = sj.ancestral(Small(), length=2, steps=3, noise=sj.systematic(), final="argmax")
    canvas = sj.canvas([[1]], 2, mask_id=4, samples=4)
    done, _ = sj.run(sampler, SMALL, jax.random.key(0), canvas)
    assert not bool(jnp.any(done.tokens == 4))
