"""Samples that keep from becoming the same text: what is counted, exactly."""

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


def guided(guidance, tokens=TOKENS, is_open=OPEN, logits=LOGITS, prompt=None, **options):
    """Logits of a prompt's samples that are what the network says, guided."""
    eye = jnp.eye(logits.shape[-1])
    moved, _ = sj.guided_logits(
        guidance,
        tokens=tokens,
        open=is_open,
        prompt=jnp.zeros_like(is_open) if prompt is None else prompt,
        features=logits,
        head=lambda rows: rows,
        tables=sj.Tables(eye, eye),
        samples=len(tokens),
        **options,
    )
    return moved


def alike(tokens=TOKENS, **options):
    """n, read from how far a token's logit moves."""
    return jnp.expm1(LOGITS - guided(sj.distinct(1.0, **options), tokens))


def chances():
    """(M, L, V) what each sample is at each column."""
    return jnp.where(OPEN[..., None], jax.nn.softmax(LOGITS), jax.nn.one_hot(TOKENS, VOCABULARY))


@pytest.mark.parametrize("bandwidth", [0.5, 1.0, 3.0])
def test_it_counts_texts_of_the_same_tokens(bandwidth):
    p = np.asarray(chances())
    n = np.asarray(alike(bandwidth=bandwidth))
    for i, c, v in itertools.product(range(SAMPLES), range(COLUMNS), range(VOCABULARY)):
        changed = p[i].copy()
        changed[c] = np.eye(VOCABULARY)[v]
        others = [p[j].sum(0) for j in range(SAMPLES) if j != i]
        squared = [np.sum(np.square(changed.sum(0) - other)) for other in others]
        wanted = np.sum(np.exp(-np.asarray(squared) / bandwidth**2)) if OPEN[i, c] else 0
        assert abs(n[i, c, v] - wanted) < 1e-5


def test_it_is_the_gap_in_the_collisions_of_the_samples():
    """What writing v adds to Σ_ij of the kernel, over what is there without sample i, is twice n:
    the objective of SAKE's order-2 entropy, with counts for features."""

    def collisions(counts):
        squared = jnp.sum(jnp.square(counts[:, None] - counts[None]), axis=-1)
        return jnp.sum(jnp.exp(-squared))

    p, i, c = chances(), 1, 2
    kept = jnp.sum(p, axis=1)
    without = collisions(jnp.delete(kept, i, axis=0)) + 1  # and sample i with itself
    for v in range(VOCABULARY):
        counts = kept.at[i].add(jax.nn.one_hot(v, VOCABULARY) - p[i, c])
        gap = collisions(counts) - without
        np.testing.assert_allclose(gap, 2 * alike()[i, c, v], atol=1e-5)


def test_the_order_of_tokens_does_not_matter():
    other = TOKENS.at[2, :2].set(jnp.asarray([2, 1]))  # "1 2" is "2 1"
    np.testing.assert_allclose(alike(other), alike(), atol=1e-6)


def test_who_differs_already_is_left_alone():
    tokens, logits = jnp.arange(12).reshape(3, 4), jnp.zeros((3, 4, 12))
    is_open = jnp.zeros((3, 4), bool).at[:, 3].set(True)
    moved = guided(sj.distinct(3.0), tokens, is_open, logits)
    assert float(jnp.abs(moved - logits)[is_open].max()) < 0.03
    assert float(jnp.abs(guided(sj.distinct(3.0)) - LOGITS)[OPEN].max()) > 0.5


def test_prompts_and_padding_are_no_part_of_what_samples_say():
    given = jnp.zeros_like(OPEN).at[:, 0].set(True)
    tokens = TOKENS.at[:, 0].set(jnp.arange(SAMPLES))
    expected = guided(sj.distinct(1.0), prompt=given)[:, 1:]
    np.testing.assert_allclose(guided(sj.distinct(1.0), tokens, prompt=given)[:, 1:], expected)
    np.testing.assert_allclose(guided(sj.distinct(1.0), tokens, attend=~given)[:, 1:], expected)


def test_one_text_that_repeats_a_token_breaks_nothing():
    """Counts far apart would overflow, were the two factors not bounded."""
    tokens = jnp.zeros((3, 300), int).at[1:].set(jnp.arange(300) % 7)
    is_open = jnp.zeros((3, 300), bool).at[:, -1].set(True)
    logits = jnp.asarray(RANDOM.normal(size=(3, 300, 7)), jnp.float32)
    moved = guided(sj.distinct(1.0), tokens, is_open, logits)
    assert bool(jnp.isfinite(moved).all())
    np.testing.assert_allclose(moved[0], logits[0], atol=1e-6)
    assert float(jnp.abs(moved - logits)[1:].max()) > 0.3


@pytest.mark.parametrize("block", [2, 6])
def test_more_texts_of_a_prompt_differ(block):
    """Blocks before the window count, too."""

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
        return len({tuple(sorted(row)) for row in done.tokens.tolist()})

    assert different(sj.distinct(2.0)) > different(sj.identity())


def test_a_prompt_needs_two_samples():
    with pytest.raises(ValueError, match="2 samples of each prompt or more"):
        guided(sj.distinct(), TOKENS[:1], OPEN[:1], LOGITS[:1])
