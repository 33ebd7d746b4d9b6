"""`revising` against DiffusionGemma's own sampler, every state; then what it could not do."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import canvas_of, case_of, model

import sake_jax as sj
from registry import ENTRIES
from sake_jax.models import ConditionedDenoiser
from sake_jax.samplers.loop import advance_until, begin_progress
from sake_jax.samplers.processes import Settled
from tiers import few_quick

NAME, W, V, EOS = "diffusion_gemma", 6, 128, 1
KEY = jax.random.key(5)
CASES = (
    "early_stop_confident",
    "left_padded",
    "early_stop_stable",
    "default_like",
    "two_canvases",
    "eos",
)


def by_step(recorded, left, steps_per_window: int, windows: int):
    """Places records, one for each step that was taken, at the steps of the plan."""
    first = np.cumsum(left == steps_per_window) - 1
    placed = np.zeros((windows * steps_per_window, *recorded.shape[1:]), recorded.dtype)
    placed[first * steps_per_window + steps_per_window - left] = recorded
    return placed


def replayed(golden, case, cache="exact"):
    """The sampler that has the reference's choices, its canvas, and what was recorded."""
    lm = model(NAME)
    args, arrays = case_of(golden, f"{NAME}/sampler_{NAME}", case)
    each, length = args["max_denoising_steps"], args["max_new_tokens"]
    windows, left = length // W, arrays["cur_step"]
    steps = each * windows
    uniform = np.maximum(by_step(arrays["uniform"], left, each, windows), 1e-30)
    gumbel = -np.log(-np.log(uniform.astype(np.float64)))

    # Of the recorded tokens, one row begins each window, and one follows each step.
    begins = np.flatnonzero(left == each) + np.arange(np.sum(left == each))
    random = arrays["random_canvas"]
    after = np.delete(random, begins, axis=0)
    assert len(after) == len(left)
    noise = by_step(after, left, each, windows)

    def tokens(keys, view, vocabulary):
        index = jnp.round(view.progress[0] * steps).astype(jnp.int32)
        return jnp.asarray(noise)[index]

    def gumbels(keys, view, vocabulary):
        index = jnp.round(view.progress[0] * steps).astype(jnp.int32)
        return jnp.asarray(gumbel, jnp.float32)[index]

    sampler = sj.revising(
        lm,
        length=length,
        steps=steps,
        reveal=sj.reveal.entropy_bound(args["entropy_bound"]),
        hot=args["t_max"],
        cold=args["t_min"],
        patience=args.get("stability_threshold", 1),
        doubt=args.get("confidence_threshold", 0.005),
        cache=cache,
        noise=gumbels,
        record="full",
    )
    sampler = sampler.replace(process=sampler.process.replace(tokens=tokens))
    canvas = canvas_of(lm, arrays, length, None)
    firsts = random[begins]
    return sampler, canvas, firsts, arrays, each


def run_from(sampler, canvas, firsts, stop=None):
    """A run that begins with recorded tokens, and what it went through."""
    params = model(NAME).params
    progress = begin_progress(sampler, params, KEY, canvas, trajectory=True)
    start, tokens = canvas.generation_start, progress.state.canvas.tokens
    for at, first in enumerate(firsts):
        tokens = tokens.at[:, start + at * W : start + (at + 1) * W].set(first)
    begun = progress.state.canvas.replace(tokens=tokens)
    progress = progress.replace(state=progress.state.replace(canvas=begun))
    end = jnp.int32(sampler.plan.steps)
    before = np.asarray(tokens)
    after = advance_until(sampler, params, KEY, progress, end, stop)
    return before, after


@pytest.mark.parametrize("case", few_quick(CASES, 1))
def test_every_state_is_the_references(case, golden):
    sampler, canvas, firsts, arrays, each = replayed(golden, case)
    stop = sj.end_tokens([EOS]) if case == "eos" else None
    before, ran = run_from(sampler, canvas, firsts, stop)
    taken = np.flatnonzero(np.asarray(ran.taken))
    left, theirs = arrays["cur_step"], arrays["current_canvas"]
    window = np.cumsum(left == each) - 1
    np.testing.assert_array_equal(taken, window * each + each - left)
    start = canvas.generation_start
    states = np.asarray(ran.tokens)
    best = np.asarray(ran.info.candidates.ids)[..., 0]
    for call, step in enumerate(taken):
        columns = slice(start + window[call] * W, start + (window[call] + 1) * W)
        entered = before if step % each == 0 else states[taken[call - 1]]
        going = ~_finished_before(arrays, call, window)
        assert going.any()
        np.testing.assert_array_equal(entered[going, columns], theirs[call][going])
        np.testing.assert_array_equal(best[step][going], arrays["argmax_canvas"][call][going])
    for row, theirs in enumerate(arrays["sequences"][:, start:]):
        ends = np.flatnonzero(theirs == EOS)
        until = 1 + ends[0] if stop is not None and len(ends) else len(theirs)
        np.testing.assert_array_equal(states[taken[-1]][row, start:][:until], theirs[:until])


def _finished_before(arrays, call, window):
    """(B,) rows that were finished before this call of their window."""
    if call == 0 or window[call] != window[call - 1]:
        return np.zeros(arrays["prompt"].shape[0], bool)
    return arrays["finished_denoising"][call - 1]


def test_all_recorded_cases_are_run(golden):
    assert set(golden(f"{NAME}/sampler_{NAME}.json")["cases"]) == set(CASES)


def test_the_pieces_of_a_step(golden):
    """Entropies, what is kept, what is noise again, and the temperature of each step."""
    g = golden(f"{NAME}/golden_sampler_pieces.npz")
    logits, drawn = jnp.asarray(g["logits"]), jnp.asarray(g["denoiser_canvas"])
    canvas = sj.canvas([[], []], W, mask_id=None)
    canvas = canvas.replace(tokens=jnp.asarray(g["current_canvas"]))
    plan = sj.blocks(W, 8, edits=0)
    view = plan.view(canvas, jnp.int32(0))
    np.testing.assert_allclose(sj.guidance.shannon_entropy(logits), g["entropy"], atol=1e-5)
    rule = sj.reveal.entropy_bound(float(g["entropy_bound"]))
    kept = rule(logits, drawn, view, KEY)
    np.testing.assert_array_equal(kept, g["accepted_mask"])
    process = sj.renoising(patience=9).replace(tokens=lambda keys, view, size: 0 * drawn + size)
    step = Settled(drawn, kept, logits, logits)
    settled, _ = process.settle(step, view, jax.random.split(KEY, 2), process.begin(canvas))
    assert not settled.done.any()
    expected = np.where(g["accepted_mask"], g["accepted_canvas"], V)
    np.testing.assert_array_equal(settled.tokens, expected)
    times = [plan.view(canvas, jnp.int32(step)).time for step in range(8)]
    ones = jnp.ones((2, W, V))
    cooled = [1 / float(_cooled(view.replace(time=time), ones)[0, 0, 0]) for time in times]
    np.testing.assert_allclose(cooled[::-1], g["temperature"], rtol=1e-5)


def _cooled(view, logits):
    toy = sj.testing.toy_context(sj.testing.toy_params(0), sj.testing.toy_view(0))
    ctx = dataclasses.replace(toy, view=view, features=jnp.zeros((2, W, 6)))
    return sj.cooling(0.8, 0.4).apply(logits, None, (), ctx)[0]


def canvas_for(prompts, length, **options):
    places = model(NAME).config.positions
    return sj.canvas(prompts, length, mask_id=None, pad_id=0, positions=places, **options)


PROMPTS = [[5, 36, 4, 51, 77, 78, 9, 30], [7], list(range(40, 51)), []]
GUIDED = sj.chain(sj.top_p(0.9), sj.sake(0.5))


def make(cache="exact", length=8, **options):
    options = {"block": 4, "steps": 3 * length // 4, "guidance": GUIDED, "doubt": 3.0} | options
    bound = sj.reveal.entropy_bound(4.0)
    return sj.revising(model(NAME), length=length, reveal=bound, cache=cache, **options)


@functools.cache
def together():
    start = canvas_for(PROMPTS, 8, samples=2)
    done, *_ = sj.run_until(make(), model(NAME).params, KEY, start)
    return start, done


@pytest.mark.slow
def test_the_cache_changes_no_token():
    """Prompts of other lengths in one batch, and windows narrower than the model's own."""
    start, done = together()
    plain, *_ = sj.run_until(make("none"), model(NAME).params, KEY, start)
    np.testing.assert_array_equal(done.tokens, plain.tokens)
    np.testing.assert_allclose(done.log_p, plain.log_p, atol=1e-4)
    assert not done.open.any()


@pytest.mark.slow
def test_neither_company_nor_padding_changes_a_token():
    start, done = together()
    for row, prompt in ((0, 0), (2, 1)):
        alone = canvas_for([PROMPTS[prompt]], 8, samples=2)
        alone = alone.replace(prompt_id=jnp.full(2, prompt))
        single, *_ = sj.run_until(make(), model(NAME).params, KEY, alone)
        written = np.asarray(done.tokens)[row : row + 2, start.generation_start :]
        np.testing.assert_array_equal(single.tokens[:, alone.generation_start :], written)


@pytest.mark.slow
def test_all_drivers_write_the_same():
    """Also those that take the steps that `run_until` leaves out."""
    params, start = model(NAME).params, canvas_for(PROMPTS[:2], 8)
    # Sure from the second step on, and however short they have been: so is the second window.
    early = make("none", patience=0, doubt=sj.piecewise({0.0: 0.0, 0.1: 9.0}))
    done, info, steps = sj.run_until(early, params, KEY, start)
    assert int(steps) == 3 < early.plan.steps
    ran, _ = sj.run(early, params, KEY, start)
    np.testing.assert_array_equal(ran.tokens, done.tokens)
    *_, (streamed, _) = sj.stream(early, params, KEY, start, chunk=4)
    np.testing.assert_array_equal(streamed.tokens, done.tokens)
    # A token that is as the noise was by chance is no news.
    assert np.asarray(info.revealed)[3].min() >= 2, "the second window at once"
    assert not np.asarray(info.revealed)[[2, 4, 5]].any()


@pytest.mark.slow
def test_log_probabilities_are_those_of_the_last_step():
    """The written tokens are its likeliest, of the guided distribution before temperature."""
    sampler = make(length=4, steps=2, guidance=sj.identity(), doubt=0.0, record="full")
    done, info = sj.run(sampler, model(NAME).params, KEY, canvas_for(PROMPTS[:2], 4))
    np.testing.assert_array_equal(done.tokens[:, -4:], info.candidates.ids[-1, ..., 0])
    np.testing.assert_allclose(done.log_p[:, -4:], info.candidates.log_p[-1, ..., 0], atol=1e-5)


SOME = ["sake, both"]
NEED_MORE = ("classifier_free", "adaptive_free", "classifier_based")
OTHERS = [
    name for name, entry in ENTRIES.items() if name not in SOME and entry.builder not in NEED_MORE
]


@pytest.mark.parametrize("name", few_quick([*SOME, *OTHERS], len(SOME)))
def test_guidances_run_under_it(name):
    """But for forms, which say that they do not: what a step does not keep here is noise again."""
    lm, start = model(NAME), canvas_for(PROMPTS[:2], 4, samples=2)
    guidance = ENTRIES[name].guidance
    if guidance.joint:
        with pytest.raises(ValueError, match="a form needs a process that leaves written tokens"):
            make("none", length=4, guidance=guidance)
        return
    sampler = make("none", length=4, guidance=guidance, record="signal")
    done, info = sj.run(sampler, lm.params, KEY, start)
    assert np.asarray(info.finite).all()
    assert not done.open.any()
    assert ((np.asarray(done.tokens) >= 0) & (np.asarray(done.tokens) < V)).all()


@pytest.mark.slow
def test_guidance_changes_what_is_written():
    start = canvas_for(PROMPTS[:1], 4, samples=4)
    written = [
        np.asarray(sj.run(make(length=4, guidance=each), model(NAME).params, KEY, start)[0].tokens)
        for each in (sj.identity(), sj.sake(20.0, scope="batch", self_term=0.0))
    ]
    assert np.any(written[0] != written[1])


def test_a_head_that_is_not_affine_has_no_free_guidance():
    sampler = make(length=4, guidance=sj.classifier_free(1.0, sj.with_label(0)))
    with pytest.raises(ValueError, match="affine head"):
        sj.run(sampler, model(NAME).params, KEY, canvas_for(PROMPTS[:1], 4))


@pytest.mark.slow
def test_the_last_prediction_is_told():
    """Without it a window is read as at first, and other tokens come out."""
    lm, start = model(NAME), canvas_for(PROMPTS[:2], 4)
    sampler = make(length=4, steps=4, doubt=0.0)
    told, _ = sj.run(sampler, lm.params, KEY, start)
    again = sampler.replace(denoiser=Forgetful(lm.config.network))
    forgot, _ = sj.run(again, lm.params, KEY, start)
    assert np.any(np.asarray(told.log_p) != np.asarray(forgot.log_p))


class Forgetful(ConditionedDenoiser):
    def remember(self, params, cache, logits, view):
        return cache


@pytest.mark.slow
def test_tokens_in_the_prompt_stay_and_others_are_filled_in():
    lm = model(NAME)
    holes = [5, -1, 7, -1]
    start = sj.canvas([holes], 4, mask_id=None, infill=True, positions=lm.config.positions)
    done, _ = sj.run(make(length=4), lm.params, KEY, start)
    tokens = np.asarray(done.tokens)[0]
    assert tokens[[0, 2]].tolist() == [5, 7]
    assert (tokens >= 0).all()
    assert not done.open.any()


def test_defaults_are_the_published_ones():
    sampler = sj.revising(model(NAME), length=12)
    assert (sampler.plan.width, sampler.plan.steps, sampler.confidence) == (W, 96, "drawn")
    assert sampler.reveal == sj.reveal.entropy_bound(0.1)
    assert (sampler.process.patience, sampler.process.doubt) == (1, 0.005)
    assert sampler.draw.parts[-1] == sj.cooling(0.8, 0.4)
    assert sj.revising(model(NAME), length=4).plan.width == 4, "no longer than it has to be"
    toy = sj.revising(sj.testing.ToyDenoiser(), length=8, confidence="guided")
    assert (toy.plan.width, toy.confidence) == (8, "guided")
    with pytest.raises(ValueError, match="multiple of block"):
        sj.revising(model(NAME), length=W + 1)
    with pytest.raises(ValueError, match="cache must be one of"):
        sj.revising(model(NAME), length=W, cache="dual")


def test_any_denoiser_may_be_drawn_with_it():
    """One without a memory of its own; noise everywhere but in what a step keeps."""
    denoiser, params = sj.testing.ToyDenoiser(), sj.testing.toy_params(0)
    start = sj.canvas([[1, 2]], 8, mask_id=None, samples=2)
    sampler = sj.revising(denoiser, length=8, steps=8, block=4, cache="none")
    done, info = sj.run(sampler, params, KEY, start)
    assert not done.open.any()
    assert np.asarray(info.finite).all()
    with pytest.raises(ValueError, match="without a mask token"):
        sj.run(sampler, params, KEY, sj.canvas([[1, 2]], 8, mask_id=16))


def test_uniform_noise_in_blocks_ends_with_each_block():
    """The process of UDLM: a block's last step closes it, and no step before."""
    sampler = sj.sampler(
        sj.testing.ToyDenoiser(), sj.blocks(8, 6, block=4, edits=0), process=sj.uniform()
    )
    start = sj.canvas([[1, 2]], 8, mask_id=None)
    still = [
        int(now.open.sum()) for now, _ in sj.stream(sampler, sj.testing.toy_params(0), KEY, start)
    ]
    assert still == [8, 8, 4, 4, 4, 0]


def test_reuse_is_not_for_networks_that_are_told():
    plan = sj.blocks(4, 4, edits=0)
    with pytest.raises(ValueError, match="not told what it predicted"):
        sj.sampler(model(NAME).denoiser, plan, process=sj.renoising(), reuse=True)


@pytest.mark.slow
def test_generate_writes_with_the_familys_sampler():
    lm = model(NAME)
    sampler = sj.sampler_for(lm, length=8, block=4, steps=4, guidance=sj.sake(0.5))
    out = sj.generate(lm, sampler, PROMPTS, samples=2, batch=4, key=KEY)
    assert np.asarray(out.tokens).shape == (len(PROMPTS), 2, 8)
    one = sj.generate(lm, sampler, PROMPTS[1:2], samples=2, key=KEY, names=[1])
    np.testing.assert_array_equal(np.asarray(one.tokens), np.asarray(out.tokens)[1:2])
    np.testing.assert_array_equal(sj.replay(out.settings, lm).tokens, out.tokens)


def test_likelihood_has_no_form_for_it():
    with pytest.raises(ValueError, match="reads a text in one pass"):
        sj.bound(model(NAME), [[1, 2, 3]], key=KEY)
