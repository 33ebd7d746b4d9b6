"""What trades tokens for speed, held to what it must equal at its limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from conftest import GOLDENS
from sake_jax import reveal
from sake_jax.testing import ToyDenoiser, toy_context, toy_params, toy_view

KEY, MASK = jax.random.key(3), 16


@pytest.fixture(scope="module")
def lm():
    return sj.load(GOLDENS / "llada")


def written(lm, length=16, **options):
    sampler = sj.masked(lm, length=length, block=8, draw=sj.temperature(0.8), **options)
    canvas = sj.canvas([[3, 4, 5], [6]], length, mask_id=lm.config.mask_id, pad_id=0, samples=2)
    return np.asarray(sj.run(sampler, lm.params, KEY, canvas, trajectory=True)[-1])


@pytest.mark.parametrize("cache", ["dual", "prefix"])
def test_a_cache_made_new_at_each_step_is_none(lm, cache):
    none = written(lm)
    np.testing.assert_array_equal(written(lm, cache=cache, refresh=1), none)
    stale = written(lm, cache=cache)
    assert not np.array_equal(stale, none)
    np.testing.assert_array_equal(written(lm, cache=cache, refresh=8), stale)


def test_what_is_read_again_and_when():
    canvas = sj.canvas([[1]], 8, mask_id=MASK)

    def choices(plan):
        return [int(plan.view(canvas, jnp.int32(step)).reread.choice) for step in range(8)]

    assert choices(sj.blocks(8, 8, 4, cache="dual")) == [1, 0, 0, 0] * 2
    assert choices(sj.blocks(8, 8, 4, cache="dual", refresh=3)) == [1, 0, 0, 1] * 2
    assert choices(sj.blocks(8, 8, 4, cache="prefix", refresh=2)) == [2, 0, 2, 0, 2, 1, 2, 1]


def test_where_there_is_nothing_to_refresh():
    toy = ToyDenoiser()
    for cache in ("none", "exact"):
        with pytest.raises(ValueError, match="refresh is for cache='prefix' and 'dual'"):
            sj.blocks(8, 8, 4, cache=cache, ahead=cache == "none", refresh=2)
    with pytest.raises(ValueError, match="refresh must be at least 1"):
        sj.blocks(8, 8, 4, cache="dual", refresh=0)
    with pytest.raises(ValueError, match="drafts need a cache that is made new at a block's"):
        sj.masked(toy, length=8, block=4, cache="dual", refresh=2, drafts=2)
    auto = sj.masked(toy, length=8, block=4, cache="dual", refresh=2, drafts="auto")
    assert auto.plan.refresh == 2


def kept(rule, chances, is_open=None):
    """What a rule keeps of draws with these probabilities."""
    chances = jnp.asarray(chances)[None]
    canvas = sj.canvas([[1]], chances.shape[1], mask_id=MASK)
    if is_open is not None:
        canvas = canvas.replace(open=canvas.open.at[0, 1:].set(jnp.asarray(is_open)))
    view = sj.blocks(chances.shape[1], 1).view(canvas, jnp.int32(0))
    logits = jnp.log(jnp.stack([chances, 1 - chances], axis=-1))
    drawn = jnp.zeros(chances.shape, jnp.int32)
    flags = jax.jit(rule)(logits, drawn, view, KEY[None])
    return np.asarray(flags & view.window(view.open))[0].tolist()  # a step leaves others alone


def test_each_gap_gives_its_likeliest():
    rule = reveal.hierarchical(0.9, low=0.3)
    # Gaps of columns 0 and 1, 3 alone, and 5 to 7.
    is_open = [True, True, False, True, False, True, True, True]
    chances = [0.4, 0.5, 0.99, 0.2, 0.99, 0.35, 0.95, 0.93]
    assert kept(rule, chances, is_open) == [False, True, False, False, False, False, True, True]
    assert kept(rule, [0.4, 0.4, 0.4]) == [True, False, False], "of equals the leftmost"
    assert kept(rule, [0.1, 0.2, 0.15]) == [False, True, False], "the likeliest, however unlikely"


@pytest.mark.parametrize("low", [0.6, 1.0])
def test_hierarchical_is_threshold_where_gaps_get_nothing_more(low):
    random = np.random.default_rng(0)
    for _ in range(20):
        chances, is_open = random.random(9), random.random(9) < 0.7
        is_open[0] = True
        alone = kept(reveal.threshold(0.6), chances, is_open)
        assert kept(reveal.hierarchical(0.6, low=low), chances, is_open) == alone


def test_credit_is_what_its_formula_says():
    ctx = toy_context(toy_params(0), toy_view(0))
    guidance = sj.credit(0.7, decay=0.8, power=0.2)
    logits = jax.random.normal(KEY, (*ctx.open.shape, ctx.tables.output.shape[0]))
    state, expected = guidance.init(ctx), np.zeros(logits.shape)
    for step in range(3):
        now = jnp.roll(logits, 5, axis=-1) if step == 1 else logits
        guided, state, _ = guidance.apply(now, 0.0, state, ctx)
        chances = np.asarray(jax.nn.softmax(now))
        best = chances == chances.max(axis=-1, keepdims=True)
        expected = 0.8 * expected + best * chances**0.2
        expected *= np.asarray(ctx.open)[..., None]
        np.testing.assert_allclose(guided, now + 0.7 * np.log1p(expected), rtol=1e-5, atol=1e-5)


def test_credit_makes_haste_and_nothing_without_weight(lm):
    def steps(guidance):
        tokens = written(lm, guidance=guidance, reveal=reveal.threshold(0.05))
        return tokens, int((tokens == lm.config.mask_id).sum())

    plain, waiting = steps(None)
    np.testing.assert_array_equal(steps(sj.credit(0.0))[0], plain)
    assert steps(sj.credit(3.0))[1] < waiting


def test_a_new_block_begins_without_credit():
    ctx = toy_context(toy_params(0), toy_view(0))
    logits = jax.random.normal(KEY, (*ctx.open.shape, ctx.tables.output.shape[0]))
    guidance = sj.credit(1.0)
    first, earned, _ = guidance.apply(logits, 0.0, guidance.init(ctx), ctx)
    second, _, _ = guidance.apply(logits, 0.0, earned, ctx)
    elsewhere = earned.replace(window_start=earned.window_start + 1)
    again, _, _ = guidance.apply(logits, 0.0, elsewhere, ctx)
    np.testing.assert_array_equal(again, first)
    assert not np.allclose(second, first)
