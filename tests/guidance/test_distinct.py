"""Samples that keep from becoming the same text: the closed form, and what it counts."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.testing import ToyDenoiser, toy_params

SAMPLES, COLUMNS, VOCABULARY = 3, 3, 4
RANDOM = np.random.default_rng(0)
LOGITS = jnp.asarray(RANDOM.normal(size=(SAMPLES, COLUMNS, VOCABULARY)), jnp.float32)
TOKENS = jnp.asarray([[1, 2, 0], [1, 0, 0], [1, 2, 3]])
OPEN = jnp.asarray([[False, True, True], [False, True, True], [False, False, True]])


def guided(guidance, tokens=TOKENS, is_open=OPEN, logits=LOGITS, **options):
    """Logits of a prompt's samples that are what the network says, guided."""
    eye = jnp.eye(logits.shape[-1])
    moved, _ = sj.guided_logits(
        guidance,
        tokens=tokens,
        open=is_open,
        prompt=jnp.zeros_like(is_open),
        features=logits,
        head=lambda rows: rows,
        tables=sj.Tables(eye, eye),
        samples=len(tokens),
        **options,
    )
    return moved


def chances(logits=LOGITS):
    """(M, L, V) what each sample is at each column."""
    return jnp.where(OPEN[..., None], jax.nn.softmax(logits), jax.nn.one_hot(TOKENS, VOCABULARY))


def meetings(**options):
    """n, read from how far a token's logit moves."""
    return jnp.expm1(LOGITS - guided(sj.distinct(1.0, **options)))


def test_it_is_the_gradient_of_the_expected_number_of_equal_pairs():
    def pairs(p):
        equal = jnp.prod(jnp.einsum("iwv,jwv->ijw", p, p), axis=-1)
        return jnp.sum(jnp.triu(equal, 1))

    wanted = jnp.where(OPEN[..., None], jax.grad(pairs)(chances()), 0)
    np.testing.assert_allclose(meetings(foresight=1.0), wanted, atol=1e-5)


def test_it_counts_texts_that_will_be_equal():
    """Against all texts that the samples may become, position by position."""
    p = np.asarray(chances())
    texts = np.asarray(list(itertools.product(range(VOCABULARY), repeat=COLUMNS)))
    likely = np.stack([np.prod(p[i, np.arange(COLUMNS), texts], axis=1) for i in range(SAMPLES)])
    n = np.asarray(meetings(foresight=1.0))
    for i, c, v in itertools.product(range(SAMPLES), range(COLUMNS), range(VOCABULARY)):
        if OPEN[i, c]:
            here = (texts[:, c] == v) * likely[i] / p[i, c, v]  # given that v is written
            others = sum(likely[j] for j in range(SAMPLES) if j != i)
            assert abs(np.sum(here * others) - n[i, c, v]) < 1e-5


def test_without_foresight_what_is_open_agrees():
    """Sample 2 has written 2 in the middle, sample 0 has not: they may be the same yet."""
    p = np.asarray(chances())
    n = np.asarray(meetings(foresight=0.0))
    np.testing.assert_allclose(n[0, 1], p[1, 1] + p[2, 1], atol=1e-5)
    less = np.asarray(meetings(foresight=0.5))[OPEN]
    assert (less < n[OPEN]).all()
    assert (less > np.asarray(meetings(foresight=1.0))[OPEN]).all()


def test_who_differs_already_is_left_alone():
    tokens = TOKENS.at[:, 0].set(jnp.arange(SAMPLES))
    moved = guided(sj.distinct(3.0), tokens)
    np.testing.assert_allclose(moved, LOGITS, atol=1e-6)
    assert float(jnp.abs(guided(sj.distinct(3.0)) - LOGITS).max()) > 0.1


def test_within_reach_only():
    """Texts that differ far away still keep from saying the same thing here."""
    tokens = TOKENS.at[:, 0].set(jnp.arange(SAMPLES))
    near = jnp.abs(guided(sj.distinct(1.0, reach=0.3), tokens) - LOGITS)
    assert float(near[:, 1:].max()) > 0.1
    wide = guided(sj.distinct(1.0, reach=1e3))
    np.testing.assert_allclose(wide, guided(sj.distinct(1.0)), atol=1e-4)


def test_prompts_and_padding_are_no_part_of_what_samples_say():
    attend = jnp.ones_like(OPEN).at[:, 0].set(False)
    tokens = TOKENS.at[:, 0].set(jnp.arange(SAMPLES))
    moved = guided(sj.distinct(1.0), tokens, attend=attend)
    np.testing.assert_allclose(moved[:, 1:], guided(sj.distinct(1.0))[:, 1:], atol=1e-5)


@pytest.mark.parametrize("block", [2, 6])
def test_more_texts_of_a_prompt_differ(block):
    """Blocks before the window count, too: who has differed there is free."""

    def different(guidance):
        sampler = sj.masked(
            ToyDenoiser(),
            length=6,
            block=block,
            guidance=sj.chain(sj.forbid([16]), guidance),
            draw=sj.temperature(0.05),
            noise=sj.systematic(),
        )
        canvas = sj.canvas([[1, 2]], 6, mask_id=16, samples=8)
        done, _ = sj.run(sampler, toy_params(0), jax.random.key(0), canvas)
        return len({tuple(row) for row in done.tokens.tolist()})

    assert different(sj.distinct(2.0)) > different(sj.identity())


def test_a_prompt_needs_two_samples():
    with pytest.raises(ValueError, match="2 samples of each prompt or more"):
        guided(sj.distinct(), TOKENS[:1], OPEN[:1], LOGITS[:1])
