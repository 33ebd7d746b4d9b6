"""What guidances, reveal rules and samplers may rely on: state, schedules, coupled samples."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import model

import sake_jax as sj
from sake_jax.testing import ToyDenoiser, check_guidance, toy_params

MASK, KEY = 16, jax.random.key(0)


class CountSteps(sj.Guidance):
    """Makes the token that is the number of the step certain; the number is its state."""

    def init(self, ctx):
        return jnp.int32(0)

    def apply(self, logits, psi, state, ctx):
        now = jnp.arange(logits.shape[-1])[None, None, :] == state
        return jnp.where(now, 100.0, logits), state + 1, None


class Together(sj.Guidance):
    """Every row sees the mean of its batch: samples of a prompt are coupled."""

    declared: bool = True

    @property
    def couples_samples(self):
        return self.declared

    def apply(self, logits, psi, state, ctx):
        groups = logits.reshape(-1, ctx.view.samples, *logits.shape[1:])
        mean = jnp.repeat(jnp.mean(groups, axis=1), ctx.view.samples, axis=0)
        return logits - 0.9 * mean, state, None


class Undeclared(Together):
    """The same without saying so."""

    @property
    def couples_samples(self):
        return False


class Loudest(sj.Node):
    """A report of a user's own."""

    top: jax.Array


class Listening(sj.Guidance):
    """Changes nothing, and reports the largest logit of each row."""

    def apply(self, logits, psi, state, ctx):
        return logits, state, Loudest(jnp.max(logits, axis=(1, 2)))


def written(sampler, rows=1, length=4, **options):
    canvas = sj.canvas([[1, 2]], length, mask_id=MASK, samples=rows)
    return sj.run(sampler, toy_params(0), KEY, canvas, **options)


@pytest.mark.parametrize("slot", ["guidance", "draw"])
def test_a_guidance_keeps_its_state_in_either_slot(slot):
    sampler = sj.masked(ToyDenoiser(), length=4, **{slot: CountSteps()})
    *_, tokens = written(sampler, trajectory=True)
    new = [set(after[0, 2:].tolist()) - {MASK} for after in np.asarray(tokens)]
    assert new == [{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}]


def test_a_stateful_draw_goes_on_in_every_driver():
    sampler = sj.masked(ToyDenoiser(), length=4, draw=CountSteps())
    canvas = sj.canvas([[1, 2]], 4, mask_id=MASK)
    scanned, _ = sj.run(sampler, toy_params(0), KEY, canvas)
    looped, *_ = sj.run_until(sampler, toy_params(0), KEY, canvas)
    *_, (streamed, _) = sj.stream(sampler, toy_params(0), KEY, canvas)
    np.testing.assert_array_equal(scanned.tokens, looped.tokens)
    np.testing.assert_array_equal(scanned.tokens, streamed.tokens)


def test_draw_takes_no_guidance_that_pushes():
    with pytest.raises(ValueError, match="draw must only shape logits"):
        sj.masked(ToyDenoiser(), length=4, draw=sj.sake(1.0))


def test_what_is_reported_is_apart_from_what_is_carried():
    guidance = sj.chain(Listening(), sj.when(sj.chain(sj.sake(1.0), Listening()), end=0.5))
    sampler = sj.masked(ToyDenoiser(), length=4, guidance=guidance, record="signal")
    _, info = written(sampler, rows=2)
    first, sake, second = info.signals
    assert (type(first), type(sake), type(second)) == (Loudest, sj.Signal, Loudest)
    chex.assert_shape([first.top, second.top, sake.covariance], (4, 2))
    assert not np.array_equal(first.top, second.top), "the second one sees what SAKE has changed"
    _, brief = written(sampler.replace(record="brief"), rows=2)
    assert brief.signals == ()


def test_recording_writes_the_same_tokens():
    sampler = sj.masked(ToyDenoiser(), length=4, guidance=sj.sake(1.0))
    runs = [written(sampler.replace(record=kind))[0].tokens for kind in ("brief", "signal", "full")]
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])


def test_samples_that_see_each_other_are_not_cut_into_batches():
    lm = model("llada")
    sampler = sj.masked(lm, length=4, guidance=sj.when(sj.chain(Together()), end=0.9))
    assert sampler.couples_samples
    with pytest.raises(ValueError, match="must fit into a batch where they repel"):
        sj.generate(lm, sampler, [[1, 2]], samples=4, batch=2, key=KEY)
    four = sj.generate(lm, sampler, [[1, 2], [3]], samples=4, batch=4, key=KEY)
    eight = sj.generate(lm, sampler, [[1, 2], [3]], samples=4, batch=8, key=KEY)
    np.testing.assert_array_equal(four.tokens, eight.tokens)


@pytest.mark.parametrize("slot", ["guidance", "draw", "reveal"])
def test_every_part_may_couple_samples(slot):
    class Rule(sj.Node):
        couples_samples = True

        def __call__(self, logits, drawn, view, key):
            return sj.reveal.confidence(logits, drawn, view, key)

    part = Rule() if slot == "reveal" else Together()
    assert sj.masked(ToyDenoiser(), length=4, **{slot: part}).couples_samples
    assert not sj.masked(ToyDenoiser(), length=4, guidance=sj.sake(1.0)).couples_samples
    assert sj.masked(ToyDenoiser(), length=4, guidance=sj.sake(scope="both")).couples_samples


def test_the_laws_find_a_guidance_that_hides_what_it_looks_at():
    with pytest.raises(AssertionError, match=r"law 'batch' is broken.*declare couples_samples"):
        check_guidance(Undeclared())
    check_guidance(Together(), skip=("closed", "finite"))


SCHEDULED = {
    "threshold": lambda n: {"reveal": sj.reveal.threshold(n)},
    "hierarchical": lambda n: {"reveal": sj.reveal.hierarchical(0.9, low=n)},
    "credit": lambda n: {"guidance": sj.credit(n), "reveal": sj.reveal.threshold(0.4)},
    "entropy_bound": lambda n: {"reveal": sj.reveal.entropy_bound(n)},
    "remasking, share": lambda n: {"process": sj.remasking(share=n)},
    "remasking, cap": lambda n: {"process": sj.remasking(cap=n)},
    "uniform": lambda n: {"process": sj.uniform(eps=n)},
    "transform": lambda n: {"guidance": sj.transform(_scaled, n)},
    "when": lambda n: {"guidance": sj.when(sj.temperature(0.3), start=n)},
}


COUNTED = ("entropy_bound", "credit")
"""Those whose numbers are no shares."""


def _scaled(logits, ctx, factor):
    return (1 + factor) * logits


@pytest.mark.parametrize("name", SCHEDULED)
def test_every_number_may_be_a_schedule(name):
    """A schedule that does not change is the number; one that does is not."""

    def tokens(number):
        plan = sj.descent(6, 12) if "process" in SCHEDULED[name](0.1) else sj.blocks(6, 6)
        sampler = sj.sampler(ToyDenoiser(), plan, **SCHEDULED[name](number))
        return np.asarray(written(sampler, rows=8, length=6, trajectory=True)[-1])

    low, middle, high = (0.0, 3.0, 9.0) if name in COUNTED else (0.0, 0.2, 0.49)
    plain = tokens(middle)
    np.testing.assert_array_equal(tokens(sj.linear(middle, middle)), plain)
    assert not np.array_equal(tokens(sj.linear(low, high)), plain)


@pytest.mark.parametrize(
    "make", [lambda n: sj.blocks(4, 4, least=n), lambda n: sj.descent(4, 4, least=n)]
)
def test_what_cannot_change_during_a_run_refuses_a_schedule(make):
    with pytest.raises(ValueError, match="must be one number for the whole run"):
        make(sj.linear(0.1, 0.2))


def test_replace_puts_a_sampler_together_by_the_same_rules():
    sampler = sj.masked(ToyDenoiser(), length=4, block=2, cache="dual")
    guided = sampler.replace(guidance=sj.sake(1.0), draw=sj.top_k(3), reveal=sj.reveal.random)
    direct = sj.masked(
        ToyDenoiser(),
        length=4,
        block=2,
        cache="dual",
        guidance=sj.sake(1.0),
        draw=sj.top_k(3),
        reveal=sj.reveal.random,
    )
    chex.assert_trees_all_equal(guided, direct)
    np.testing.assert_array_equal(written(guided)[0].tokens, written(direct)[0].tokens)
    with pytest.raises(ValueError, match="reuse is for plans without a cache"):
        sampler.replace(reuse=True)
    with pytest.raises(ValueError, match="record must be one of"):
        sampler.replace(record="everything")


def test_replacing_a_greedy_draw_brings_the_noise_back():
    greedy = sj.masked(ToyDenoiser(), length=4, draw=sj.temperature(0.0))
    assert greedy.noise is sj.still
    warm = greedy.replace(draw=sj.temperature(1.0))
    assert warm.noise is not sj.still
    silent = sj.masked(ToyDenoiser(), length=4, noise=sj.still).replace(draw=sj.temperature(1.0))
    assert silent.noise is sj.still, "who asks for no noise gets none"
