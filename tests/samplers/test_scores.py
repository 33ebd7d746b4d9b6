"""Concrete scores (SEDD): every state against the original, and what guidance keeps."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import at_step, model

import sake_jax as sj
from networks import view_of
from sake_jax.core import LOWEST
from sake_jax.noise_levels import noise_removed, unmask_chance
from sake_jax.samplers import advance, begin
from sake_jax.samplers.scores import AbsorbingScore, UniformScore
from sake_jax.testing import ToyDenoiser, toy_params, toy_view
from tiers import few_quick

KEY, MASK = jax.random.key(0), 60
NOISES = {"loglinear": sj.LogLinear(), "geometric": sj.Geometric(1e-4, 20.0)}
STEPS = {"analytic": "tweedie", "euler": "euler"}
CASES = (
    "analytic_loglinear",
    "euler_loglinear",
    "analytic_geometric",
    "euler_geometric",
    "analytic_no_denoise",
    "analytic_cond_prefix_suffix",
    "euler_cond_scattered",
)


def with_noise(lm, noise):
    """The same network, told another schedule's noise."""
    network = dataclasses.replace(lm.config.network, noise=noise)
    return sj.LanguageModel(dataclasses.replace(lm.config, network=network), lm.params)


def close(ours, theirs):
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=2e-3, atol=1e-5)


def chances(p):
    """Negative entries are never drawn."""
    p = np.maximum(np.asarray(p, np.float64), 0)
    return p / p.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("name", NOISES)
def test_schedules_are_the_references(name, golden):
    g, noise = golden("sedd/golden_noise.npz"), NOISES[name]
    np.testing.assert_allclose(noise.total(jnp.asarray(g["t"])), g[f"{name}/total"], rtol=2e-4)
    np.testing.assert_allclose(noise.rate(jnp.asarray(g["t"])), g[f"{name}/rate"], rtol=2e-4)


@pytest.mark.parametrize("family", ["sedd", "sedd_uniform"])
@pytest.mark.parametrize("name", NOISES)
def test_a_step_has_the_recorded_distribution(family, name, golden):
    g, lm = golden(f"{family}/golden_step.npz"), with_noise(model(family), NOISES[name])
    recorded_time = jnp.asarray(g["t"])[:, 0]
    moving = g["x"] == MASK if family == "sedd" else np.ones(g["x"].shape, bool)
    for update in ("euler", "analytic", "denoiser"):
        last = update == "denoiser"  # recorded where a run ends
        time = jnp.full(2, 1e-5) if last else recorded_time
        view = view_of(lm, g["x"], start=0, width=6, time=time).replace(
            next_time=jnp.zeros(2) if last else time - float(g["step_size"]),
            mask_id=lm.config.mask_id,
        )
        features, _ = lm.denoiser.read(lm.params, view, None)
        process = sj.ancestral(lm, length=6, step=STEPS.get(update)).process
        scores = process.clean(lm.denoiser.head(lm.params, features), view)
        theirs = g[f"{name}/{update}/probs"]
        ours = np.asarray(jnp.exp(process.log_q(scores, view)))[..., : theirs.shape[-1]]
        np.testing.assert_allclose(
            chances(ours[moving]), chances(theirs[moving]), rtol=2e-3, atol=2e-6
        )


@pytest.mark.parametrize("graph", ["absorb", "uniform"])
def test_steps_of_given_scores_are_the_references(graph, golden):
    """The distribution of given scores, put together of the recorded pieces as theirs is."""
    g = golden(f"{'sedd' if graph == 'absorb' else 'sedd_uniform'}/golden_graph.npz")
    own = np.take_along_axis(g["score"], g["x"][..., None], axis=-1)
    moving = g["x"] == MASK if graph == "absorb" else np.ones(g["x"].shape, bool)
    scores = jnp.log(jnp.asarray(g["score"] / own))
    lm = model("sedd" if graph == "absorb" else "sedd_uniform")
    # Times between which log-linear noise falls by the recorded amount.
    noise = sj.LogLinear(0.0)
    early, removed = jnp.float32(0.1), jnp.asarray(g["dsigma"])[:, 0]
    late = -jnp.expm1(-(noise.total(early) + removed))
    view = view_of(lm, g["x"], start=0, width=6, time=late).replace(
        next_time=jnp.full(2, early), mask_id=lm.config.mask_id
    )
    close(noise_removed(noise, view.time, view.next_time), g["dsigma"][:, 0])
    if not np.allclose(own, 1):  # the pieces are recorded for scores as they were given
        scores = jnp.log(jnp.asarray(g["score"]))
    exact = sj.concrete_score(graph, noise=noise).log_q(scores, view)
    theirs = g["staggered_score"] * g["transp_transition"]
    if np.allclose(own[moving], 1):
        np.testing.assert_allclose(
            chances(jnp.exp(exact)[moving]), chances(theirs[moving]), rtol=2e-3, atol=2e-6
        )
    rate = (view.time - view.next_time) * noise.rate(view.time)
    ours = sj.concrete_score(graph, noise=noise, step="euler").log_q(scores, view)
    one_hot = np.eye(g["score"].shape[-1])[g["x"]]
    theirs = one_hot + np.asarray(rate)[:, None, None] * g["reverse_rate"]
    np.testing.assert_allclose(
        chances(jnp.exp(ours)[moving]), chances(theirs[moving]), rtol=2e-3, atol=2e-6
    )


def test_a_filter_that_would_keep_what_stands_stops_nothing():
    """The token that stands has the score 1, here the largest of all: it is no candidate."""
    process, lm = sj.concrete_score("uniform"), model("sedd_uniform")
    tokens, size = jnp.array([[3, 1]]), lm.config.network.V
    view = view_of(lm, tokens, start=0, width=2, time=jnp.full(1, 0.8))
    view = view.replace(next_time=jnp.full(1, 0.5))
    base = process.clean(-1 - jax.random.uniform(KEY, (1, 2, size)), view)
    best = jnp.arange(size)[None, None] == jnp.argmax(base, axis=-1)[..., None]
    guided = process.keep_rate(jnp.where(best, 0.0, LOWEST), base, view)
    own = jnp.arange(size)[None, None] == tokens[..., None]
    assert not bool(jnp.any(best & own))
    for scores in (base, guided):
        total = jnp.sum(jnp.where(own, 0, jnp.exp(scores)), axis=-1)
        np.testing.assert_allclose(total, jnp.sum(jnp.exp(base), axis=-1), rtol=1e-5)


def recorded(arrays, name, moves, size):
    """The draws of the moves, and of the last step, whose mask column is cut off."""
    tiny = np.float32(1e-10)
    uniform = arrays[f"{name}/uniform"].astype(np.float32)
    if f"{name}/uniform_denoiser" in arrays:
        last = arrays[f"{name}/uniform_denoiser"].astype(np.float32)
        last = np.pad(last, ((0, 0), (0, 0), (0, size - last.shape[-1])), constant_values=0.5)
        uniform = np.concatenate([uniform, last[None]])
    noise = -np.log(tiny - np.log(uniform + tiny))
    return lambda keys, view, vocabulary: at_step(noise, view, len(noise))


@pytest.mark.parametrize("family", ["sedd", "sedd_uniform"])
@pytest.mark.parametrize("case", few_quick(CASES, 3))
def test_every_state_is_the_recorded_one(family, case, golden):
    arrays = golden(f"{family}/sampler_sedd.npz")
    about = golden(f"{family}/sampler_sedd.json")["cases"][case]
    geometric = about["noise"] == "geometric"
    noise = sj.Geometric(about["sigma_min"], about["sigma_max"]) if geometric else sj.LogLinear()
    lm = with_noise(model(family), noise)
    states, length = arrays[f"{case}/states"], about["length"]
    sampler = sj.ancestral(
        lm,
        length=length,
        steps=about["steps"],
        step=STEPS[about["predictor"]],
        final="draw" if about["denoise"] else "none",
        least=about["eps"],
        noise=recorded(arrays, case, about["steps"], lm.config.network.V),
    )
    hole = -1 if lm.config.mask_id is None else MASK
    prompts = np.full((about["batch"], length), hole)
    prompts[:, about.get("locs", [])] = arrays.get(f"{case}/input_ids", np.zeros((2, 0), int))
    canvas = sj.canvas(prompts.tolist(), length, mask_id=lm.config.mask_id, infill=True)
    state = begin(sampler, lm.params, KEY, canvas)
    state = state.replace(canvas=state.canvas.replace(tokens=jnp.asarray(states[0])))
    go = jax.jit(functools.partial(advance, sampler, lm.params, KEY))
    assert len(states) == sampler.plan.steps + 1
    for expected in states[1:]:
        state, info = go(state)
        np.testing.assert_array_equal(state.canvas.tokens, expected)
        assert bool(jnp.all(info.finite))
    np.testing.assert_array_equal(state.canvas.tokens, arrays[f"{case}/output"])


def test_the_first_steps_are_not_rounding():
    """The original's float32 step may unmask everything at once; this one is float64's."""
    noise = sj.Geometric(1e-4, 20.0)
    t, s = 1.0, 0.875
    high, low = (1e-4 ** (1 - at) * 20.0**at for at in (t, s))
    chance = np.random.default_rng(0).dirichlet(np.ones(60), size=(1, 4))
    # What a perfect network of this size gives: scores are p(y) / (e^σ - 1).
    logits = np.concatenate([np.log(60 * chance), np.zeros((1, 4, 1))], axis=-1)
    view = view_of(model("sedd"), np.full((1, 4), MASK), start=0, width=4, time=jnp.full(1, t))
    view = view.replace(next_time=jnp.full(1, s), mask_id=jnp.int32(MASK))
    process = sj.concrete_score(noise=noise, scaled=True)
    scores = process.clean(jnp.asarray(logits, jnp.float32), view)
    q = np.asarray(jnp.exp(process.log_q(scores, view)))
    unmasked = np.expm1(high - low) / np.expm1(high)
    assert 0.01 < unmasked < 0.02
    np.testing.assert_allclose(q[..., MASK], 1 - unmasked, rtol=1e-4)
    np.testing.assert_allclose(q[..., :-1], unmasked * chance, rtol=1e-4)
    # As the original computes what stays: e^Δσ + (1 - e^Δσ) (1 + Σ s), with e^Δσ above 1e6.
    grown = np.exp(np.float32(high - low))
    everything = np.float32(1 + np.exp(-high))
    theirs = grown + (np.float32(1) - grown) * everything
    assert abs(theirs - (1 - unmasked)) > 0.01


@pytest.mark.parametrize("step", ["tweedie", "euler"])
def test_true_scores_are_masked_diffusion(step):
    """Where scores are p(y) / (e^σ - 1), SEDD's step is that of a network that predicts p."""
    for noise in (sj.LogLinear(), sj.Geometric(1e-3, 5.0)):
        view = toy_view(3)
        view = view.replace(tokens=jnp.full_like(view.tokens, 16))
        logits = jnp.asarray(np.random.default_rng(1).normal(size=(4, 6, 17)), jnp.float32)
        plain = sj.absorbing(noise, step)
        log_p = jax.nn.log_softmax(plain.clean(logits, view))
        scores = log_p - jnp.log(jnp.expm1(noise.total(view.time)))[:, None, None]
        process = sj.concrete_score(noise=noise, step=step)
        ours = jax.nn.softmax(process.log_q(process.clean(scores, view), view))
        np.testing.assert_allclose(ours, jax.nn.softmax(plain.log_q(logits, view)), atol=2e-5)


def test_true_scores_of_uniform_noise_are_its_posterior():
    """s(y) of one clean token: the step is the exact posterior q(x_s | x_t, x_0)."""
    size, sigma_t, sigma_s = 17, 1.3, 0.4
    noise = sj.LogLinear(0.0)
    time, earlier = (jnp.full(4, -np.expm1(-sigma), jnp.float32) for sigma in (sigma_t, sigma_s))
    view = toy_view(0).replace(time=time, next_time=earlier)
    tokens = np.asarray(view.window(view.tokens))
    clean = np.random.default_rng(0).integers(0, size, tokens.shape)

    def after(sigma):  # q(x | x_0)
        kept = np.exp(-sigma)
        return kept * np.eye(size) + (1 - kept) / size

    marginal = after(sigma_t)[clean]
    scores = marginal / np.take_along_axis(marginal, tokens[..., None], axis=-1)
    process = sj.concrete_score("uniform", noise=noise)
    ours = jax.nn.softmax(process.log_q(jnp.log(jnp.asarray(scores, jnp.float32)), view))
    exact = after(sigma_s)[clean] * np.moveaxis(after(sigma_t - sigma_s)[:, tokens], 0, -1)
    np.testing.assert_allclose(ours, exact / exact.sum(axis=-1, keepdims=True), atol=2e-5)


PROCESSES = {
    "absorb": sj.concrete_score(noise=sj.LogLinear(), scaled=True),
    "absorb, euler": sj.concrete_score(noise=sj.Geometric(1e-3, 5.0), step="euler", scaled=True),
    "uniform": sj.concrete_score("uniform", noise=sj.LogLinear()),
    "uniform, euler": sj.concrete_score("uniform", noise=sj.Geometric(1e-3, 5.0), step="euler"),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_guidance_changes_where_a_token_goes_but_not_whether(name):
    """The paper's normalised transition: shares of the scores are guided, their sum is kept."""
    process, view = PROCESSES[name], toy_view(2)
    view = view.replace(next_time=0.98 * view.time)  # a small step, so that some stay
    if "uniform" in name:
        view = view.replace(tokens=view.tokens % 16)
    own = np.asarray(view.window(view.tokens))[..., None]
    base = process.clean(
        jnp.asarray(np.random.default_rng(1).normal(size=(4, 6, 17)), jnp.float32), view
    )
    push = jnp.asarray(np.random.default_rng(2).normal(size=(4, 6, 17)), jnp.float32) + 2.0
    kept = process.keep_rate(base + push, base, view)
    others = np.arange(17) != own

    def total(scores):
        return np.sum(np.where(others, np.exp(np.asarray(scores, np.float64)), 0), axis=-1)

    is_open = np.asarray(view.window(view.open))
    where = is_open if "absorb" in name else np.ones_like(is_open)
    np.testing.assert_allclose(total(kept)[where], total(base)[where], rtol=1e-5)
    ratio = np.asarray(kept - base - push)[..., :16]
    spread = np.where(others[..., :16], ratio, np.nan)
    assert np.nanmax(np.nanstd(spread, axis=-1)[where]) < 1e-4, "one factor for all tokens"
    stay = lambda scores: np.take_along_axis(  # noqa: E731
        np.asarray(jnp.exp(process.log_q(scores, view))), own, axis=-1
    )[where]
    np.testing.assert_allclose(stay(kept), stay(base), rtol=1e-4, atol=1e-6)
    assert not np.allclose(stay(base + push), stay(base), rtol=0.1, atol=1e-3)
    forbidden = process.keep_rate(jnp.full_like(base, -1e30), base, view)
    assert np.all(np.asarray(forbidden)[np.broadcast_to(others, base.shape)] == -1e30)


@pytest.mark.parametrize("guidance", [sj.sake(3.0), sj.top_p(0.5), sj.classifier_free(2.0)])
def test_a_guided_run_unmasks_at_the_same_pace(guidance):
    """How many tokens are written at a step is the network's, whatever they are; the draws of one
    key differ, so that the means of many rows are compared."""
    process = sj.concrete_score(noise=sj.LogLinear(), scaled=True)
    params = toy_params(0)
    # Scores of the right size: their sum is 1 / (e^σ - 1) where outputs sum to V - 1.
    params = params | {"output": 0.05 * params["output"], "bias": jnp.zeros(17)}
    canvas = sj.canvas([[1, 2]], 12, mask_id=16, samples=64)

    def pace(guidance):
        plan = sj.descent(12, 6, final="draw")
        sampler = sj.sampler(ToyDenoiser(), plan, process=process, guidance=guidance)
        done, info = sj.run(sampler, params, KEY, canvas)
        return np.asarray(done.tokens), np.asarray(info.revealed).mean(axis=1)

    (free, plain), (guided, same) = pace(None), pace(guidance)
    assert not np.array_equal(free, guided)
    np.testing.assert_allclose(same, plain, atol=0.6)
    assert (guided != 16).all()


def test_guidances_on_log_q_have_the_last_word():
    """D-CBG changes the chance to move as well, as its paper defines it."""
    process = sj.concrete_score(noise=sj.LogLinear(), scaled=True)
    canvas, params = sj.canvas([[1, 2]], 6, mask_id=16, samples=8), toy_params(0)
    params = params | {"output": 0.05 * params["output"], "bias": jnp.zeros(17)}

    def never(params, one_hot, view):
        return -50.0 * jnp.sum(one_hot[..., :16], axis=(1, 2))

    guidance = sj.classifier_based(never, (), 1.0, method="exact")
    sampler = sj.sampler(
        ToyDenoiser(), sj.descent(6, 4, final="none", least=0.2), process=process, guidance=guidance
    )
    done, _ = sj.run(sampler, params, KEY, canvas)
    assert (np.asarray(done.tokens)[:, 2:] == 16).all()
    free, _ = sj.run(sampler.replace(guidance=None), params, KEY, canvas)
    assert (np.asarray(free.tokens)[:, 2:] != 16).mean() > 0.5


@pytest.mark.parametrize("family", ["sedd", "sedd_uniform", "radd"])
def test_a_row_does_not_depend_on_its_batch(family):
    lm = model(family)
    sampler = sj.ancestral(lm, length=6, steps=5, draw=sj.top_p(0.9))
    many = sj.generate(lm, sampler, [[1, 2, 3], [4]], samples=3, key=KEY, batch=6)
    few = sj.generate(lm, sampler, [[1, 2, 3], [4]], samples=3, key=KEY, batch=1)
    np.testing.assert_array_equal(many.tokens, few.tokens)
    assert len(np.unique(many.tokens.reshape(6, -1), axis=0)) > 1
    assert lm.config.mask_id is None or (many.tokens != lm.config.mask_id).all()


def test_a_hole_is_filled_in_without_a_mask_token():
    lm = model("sedd_uniform")
    sampler = sj.ancestral(lm, length=5, steps=4)
    out = sj.generate(lm, sampler, [[7, -1, 8, -1, 9]], key=KEY, infill=True, samples=2)
    assert (out.tokens[0][:, [0, 2, 4]] == [7, 8, 9]).all()
    assert (out.tokens >= 0).all()
    with pytest.raises(ValueError, match=r"must have no mask tokens \(id -1\)"):
        sj.generate(lm, sampler, [[7, -1]], key=KEY)


def test_a_models_own_process():
    sedd, uniform = model("sedd"), model("sedd_uniform")
    made = sj.ancestral(sedd, length=8)
    assert made.process == AbsorbingScore(sj.LogLinear(), "tweedie", scaled=True)
    assert made.plan.final == "draw"
    assert not made.reuse
    assert sj.sampler_for(sedd, length=8).process == made.process
    made = sj.ancestral(uniform, length=8, step="euler")
    assert made.process == UniformScore(sj.Geometric(1e-4, 20.0), "euler", scaled=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sj.concrete_score("mask"), "graph must be one of"),
        (lambda: sj.concrete_score(step="exact"), "step must be one of"),
        (lambda: sj.Geometric(2.0, 1.0), "0 < low < high"),
        (lambda: sj.LogLinear(1.0), "eps must be from 0 to below 1"),
        (lambda: sj.ancestral(model("udlm"), length=4, step="euler"), "has exact steps"),
        (
            lambda: sj.ancestral(model("mdlm"), length=4, step="euler", process=sj.absorbing()),
            "pass it to the process",
        ),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_chance_to_unmask_is_exact_where_almost_all_is_noise():
    noise = sj.Geometric(1e-4, 20.0)
    t, s = 0.999, 0.99
    total = [float(1e-4 ** (1 - at) * 20.0**at) for at in (t, s)]
    exact = (np.exp(-total[1]) - np.exp(-total[0])) / -np.expm1(-total[0])
    chance = unmask_chance(noise, "tweedie", jnp.float32(t), jnp.float32(s))
    np.testing.assert_allclose(chance, exact, rtol=2e-3)
