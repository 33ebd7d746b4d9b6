"""Orders between confidence and chance, and orders that the samples of a prompt do not share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import model

import sake_jax as sj
from sake_jax import reveal
from sake_jax.testing import ToyDenoiser, toy_params
from tiers import few_quick

MASK, KEY, MANY = 16, jax.random.key(0), 20_000
BOUND = float(np.sqrt(np.log(2e9) / (2 * MANY)))
"""Hoeffding: a share of MANY draws is further than this from its chance once in a billion."""
CONFIDENCES = np.array([0.5, 0.3, 0.15, 0.8])


def scene(rows, confidences=CONFIDENCES, samples=1, quota=1):
    """Rows whose drawn token, 0, has these probabilities at the open positions."""
    length = len(confidences)
    canvas = sj.canvas([[1]] * (rows // samples), length, mask_id=MASK, samples=samples)
    view = sj.blocks(length, length).view(canvas, jnp.int32(0))
    both = np.stack([confidences, 1 - confidences], axis=-1)
    logits = jnp.broadcast_to(jnp.asarray(np.log(both), jnp.float32)[None], (rows, length, 2))
    drawn = jnp.zeros((rows, length), jnp.int32)
    return logits, drawn, view.replace(quota=jnp.full(rows, quota))


@jax.jit
def follow(rule, logits, drawn, view, key):
    return rule(logits, drawn, view, key)


def kept(rule, rows, **options):
    keys = jax.random.split(KEY, rows)
    return np.asarray(follow(reveal.as_rule(rule), *scene(rows, **options), keys))


def test_tempered_lies_between_confidence_and_random():
    for quota in (1, 2):
        same = kept(reveal.tempered(0.0), 64, quota=quota)
        np.testing.assert_array_equal(same, kept(reveal.confidence, 64, quota=quota))
        same = kept(reveal.tempered(1e9), 64, quota=quota)
        np.testing.assert_array_equal(same, kept(reveal.random, 64, quota=quota))
    between = kept(reveal.tempered(1.0), 64)
    assert not np.array_equal(between, kept(reveal.confidence, 64))


@pytest.mark.parametrize("tau", few_quick([0.5, 2.0], 1))
def test_tempered_draws_in_proportion_to_powers_of_confidence(tau):
    chances = CONFIDENCES ** (1 / tau) / np.sum(CONFIDENCES ** (1 / tau))
    share = kept(reveal.tempered(tau), MANY).mean(axis=0)
    np.testing.assert_allclose(share, chances, atol=BOUND)
    # Two without replacement: i before j, or j before i.
    pairs = kept(reveal.tempered(tau), MANY, quota=2)
    first = chances[:, None] * chances[None] / (1 - chances[:, None])
    for i in range(4):
        for j in range(i):
            together = np.mean(pairs[:, i] & pairs[:, j])
            assert abs(together - first[i, j] - first[j, i]) < BOUND


def flat(logits, drawn):
    return jnp.ones(drawn.shape)


def test_tempered_by_other_scores_and_schedules():
    share = kept(reveal.tempered(0.7, by=flat), MANY).mean(axis=0)
    np.testing.assert_allclose(share, 0.25, atol=BOUND)
    fading = reveal.tempered(sj.linear(0.0, 1.0))  # 0 at the first step
    np.testing.assert_array_equal(kept(fading, 64), kept(reveal.confidence, 64))


@pytest.mark.parametrize("tau", few_quick([0.5, 1e6], 1))
def test_a_systematic_order_has_the_same_law_for_each_sample(tau):
    rule, samples = reveal.tempered(tau, systematic=True), 4
    powers = CONFIDENCES ** (1 / tau)
    chances = powers / powers.sum()
    chosen = kept(rule, MANY, samples=samples).reshape(-1, samples, 4)
    each = float(np.sqrt(np.log(2e9) / (2 * MANY / samples)))
    for sample in range(samples):
        np.testing.assert_allclose(chosen[:, sample].mean(axis=0), chances, atol=each)
    # Together they have every position as often as it is due, rounded up or down.
    counts = chosen.sum(axis=1)
    assert (counts >= np.floor(samples * chances - 1e-4)).all()
    assert (counts <= np.ceil(samples * chances + 1e-4)).all()


@pytest.mark.slow
def test_a_systematic_order_without_replacement():
    pairs = kept(reveal.tempered(1.0, systematic=True), MANY, samples=4, quota=2)
    chances = CONFIDENCES / CONFIDENCES.sum()
    first = chances[:, None] * chances[None] / (1 - chances[:, None])
    assert (pairs.sum(axis=1) == 2).all()
    for i in range(4):
        for j in range(i):
            together = np.mean(pairs[:, i] & pairs[:, j])
            assert abs(together - first[i, j] - first[j, i]) < 2 * BOUND


def test_a_tempered_threshold_is_a_threshold_at_zero():
    for value in (0.1, 0.3, 0.9):
        sharp = kept(reveal.tempered_threshold(value, 0.0), 8)
        np.testing.assert_array_equal(sharp, kept(reveal.threshold(value), 8))


def test_a_tempered_threshold_accepts_one_half_at_the_threshold():
    confidences = np.array([0.5, 0.3, 0.15, 0.999])
    value, tau = 0.3, 0.4
    accepted = kept(reveal.tempered_threshold(value, tau), MANY, confidences=confidences)
    powers = confidences ** (1 / tau)
    alone = powers / (powers + value ** (1 / tau))
    # One is always accepted, which is mostly accepted anyway: the last, so others may only gain.
    share = accepted.mean(axis=0)
    assert (share >= alone - BOUND).all()
    np.testing.assert_allclose(share[:3], alone[:3], atol=BOUND + (1 - alone[3]))
    assert accepted.any(axis=1).all()


def test_stratified_first_moves_are_dealt_out():
    few = kept(reveal.stratified(reveal.confidence), 2 * 50, samples=2).reshape(50, 2, 4)
    assert (few.sum(axis=2) == 1).all()
    assert (few.sum(axis=1) <= 1).all(), "two samples of a prompt begin at two positions"
    many = kept(reveal.stratified(reveal.confidence), 8 * 50, samples=8).reshape(50, 8, 4)
    assert (many.sum(axis=1) == 2).all(), "eight samples share four positions evenly"
    assert len({tuple(map(tuple, group)) for group in many}) > 10, "another deal for each prompt"


def test_stratified_random_order_is_random_for_each_sample():
    for samples in (2, 5):
        rows = MANY // samples * samples
        chosen = kept(reveal.stratified(reveal.random), rows, samples=samples)
        chosen = chosen.reshape(-1, samples, 4)
        each = float(np.sqrt(np.log(2e9) / (2 * len(chosen))))
        for sample in range(samples):
            np.testing.assert_allclose(chosen[:, sample].mean(axis=0), 0.25, atol=each)


def test_stratified_leaves_later_moves_to_the_rule():
    logits, drawn, view = scene(8, samples=4)
    begun = view.replace(open=view.open.at[:, 1].set(False))
    keys = jax.random.split(KEY, 8)
    again = follow(reveal.stratified(reveal.confidence), logits, drawn, begun, keys)
    plain = follow(reveal.as_rule(reveal.confidence), logits, drawn, begun, keys)
    np.testing.assert_array_equal(again, plain)


def test_apart_is_tempered_without_strength_and_spreads_with_it():
    for tau in (0.0, 0.7):
        none = kept(reveal.apart(0.0, tau=tau), 64, samples=4)
        np.testing.assert_array_equal(none, kept(reveal.tempered(tau), 64, samples=4))
    equal = kept(reveal.apart(1.0, by=flat), 64, samples=4).reshape(-1, 4, 4)
    assert (equal.sum(axis=1) == 1).all()
    spread = kept(reveal.apart(1e4), 64, samples=4).reshape(-1, 4, 4)
    assert (spread.sum(axis=1) == 1).all(), "four samples at four positions"
    # The nearest in confidence gives way first: .8 beats .5 unless all others are at .8.
    close = kept(reveal.apart(0.5), 64, samples=4).reshape(-1, 4, 4)
    assert close[:, :3, 3].all()
    assert close[:, 3, 0].all()


def test_apart_counts_what_others_have_written():
    logits, drawn, view = scene(4, samples=2)
    # The first sample of a prompt has written the surest position: the second goes elsewhere.
    ahead = view.replace(open=view.open.at[::2, 4].set(False))
    keys = jax.random.split(KEY, 4)
    chosen = np.asarray(follow(reveal.apart(9.0), logits, drawn, ahead, keys))
    assert not chosen[1::2, 3].any()
    assert (chosen.sum(axis=1) == 1).all()
    schedule = reveal.apart(sj.linear(0.0, 9.0))  # none at the first step
    chosen = np.asarray(follow(schedule, logits, drawn, ahead, keys))
    assert chosen[1::2, 3].all()


def test_rules_around_a_coupling_rule_couple_too():
    inner = reveal.stratified(reveal.confidence)
    for rule in (reveal.late(inner, [2]), reveal.sub_blocks(inner, 2), reveal.editing(inner, 0.9)):
        assert sj.masked(ToyDenoiser(), length=4, reveal=rule).couples_samples
    assert not sj.masked(ToyDenoiser(), length=4, reveal=reveal.tempered(0.5)).couples_samples
    assert sj.masked(ToyDenoiser(), length=4, noise=sj.systematic()).couples_samples


COUPLED = {
    "systematic draws, tempered": {
        "noise": sj.systematic(),
        "reveal": reveal.tempered(0.5, systematic=True),
    },
    "stratified": {"reveal": reveal.stratified(reveal.tempered(0.3))},
    "apart": {"reveal": reveal.apart(3.0, tau=0.2)},
}


@pytest.mark.parametrize("name", few_quick(COUPLED, 0))
def test_prompts_do_not_see_each_other(name):
    sampler = sj.masked(ToyDenoiser(), length=4, **COUPLED[name])

    def tokens(prompts):
        canvas = sj.canvas(prompts, 4, mask_id=MASK, samples=4)
        return sj.run(sampler, toy_params(0), KEY, canvas)[0].tokens

    np.testing.assert_array_equal(tokens([[1, 2], [3, 4]])[:4], tokens([[1, 2]]))


@pytest.mark.slow
@pytest.mark.parametrize("name", COUPLED)
def test_coupled_samples_do_not_depend_on_batches(name):
    lm = model("llada")
    sampler = sj.masked(lm, length=4, **COUPLED[name])
    with pytest.raises(ValueError, match="must fit into a batch where they repel"):
        sj.generate(lm, sampler, [[1, 2]], samples=4, batch=2, key=KEY)
    four = sj.generate(lm, sampler, [[1, 2], [3]], samples=4, batch=4, key=KEY)
    eight = sj.generate(lm, sampler, [[1, 2], [3]], samples=4, batch=8, key=KEY)
    np.testing.assert_array_equal(four.tokens, eight.tokens)


def test_a_batch_that_cuts_a_prompt_is_refused():
    canvas = sj.canvas([[1], [2], [3]], 4, mask_id=MASK).replace(samples=2)
    sampler = sj.masked(ToyDenoiser(), length=4, reveal=reveal.apart(1.0))
    with pytest.raises(ValueError, match="must be in one batch, got"):
        sj.run(sampler, toy_params(0), KEY, canvas)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: reveal.tempered(-1.0), "tau must be at least 0"),
        (lambda: reveal.tempered_threshold(2.0, 0.1), "tempered_threshold must be at most 1"),
        (lambda: reveal.apart(-1.0), "strength must be at least 0"),
    ],
)
def test_mistakes_are_explained(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()
