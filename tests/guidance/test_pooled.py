"""ODD and determinantal processes against their reference, and what ours do better."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.guidance.pooled import orthogonal
from sake_jax.testing import ToyDenoiser, outcome, toy_context, toy_params, toy_view
from tiers import few_quick

SETTINGS = [
    "odd_default", "dpp", "odd_history", "odd_embeddings_mean", "odd_positional_topk",
    "odd_no_confidence_no_protect", "dpp_embeddings", "orthogonal_projection",
]  # fmt: skip
"""All that were recorded, but random_probe: random directions, which its authors found worse."""
RUNS = [
    "odd_t1", "dpp_t0_distinct_prompts", "odd_t0_degenerate", "odd_embeddings_mean_uneven",
    "odd_positional_topk", "odd_t0_distinct_prompts", "orthogonal_projection_t1",
    "orthogonal_projection_t0_distinct_prompts", "baseline_t1",
]  # fmt: skip
TOLERANCE = {"odd": 2e-3, "dpp": 2e-2, "orthogonal_projection": 2e-3}


@pytest.fixture(scope="module")
def lm():
    return sj.load(GOLDENS / "llada")


def guidance_of(case, protected, history=None):
    """Ours with the reference's settings; its `jitter=0` leaves equal samples alone."""
    options = {
        "pool": case.get("pool", "max"),
        "top": case.get("top_k", 0),
        "weighted": case.get("confidence", True),
        "features": "embeddings" if case.get("target") == "embeddings" else "probabilities",
        "protect": protected if case.get("protected", True) else (),
        "history": history if case.get("history") else None,
        "jitter": 0.0,
    }
    if case["strategy"] == "dpp":
        return sj.dpp(case["alpha"], quality=case.get("quality_scale", 1.0), **options)
    sequential = case["strategy"] == "orthogonal_projection"
    return sj.odd(case["alpha"], sequential=sequential, **options)


@pytest.mark.parametrize("name", few_quick(SETTINGS, 2))
def test_guided_logits_are_the_reference_s(name, golden, lm):
    arrays = golden("odd/golden_odd.npz")
    case = golden("odd/sampler_odd.json")["guidance"][name]
    logits, is_open = jnp.asarray(arrays["logits"]), jnp.asarray(arrays["mask_index"])
    history = jnp.asarray(arrays["history_vecs"])
    guided, _ = sj.guided_logits(
        guidance_of(case, arrays["protected_tokens"].tolist(), history),
        tokens=jnp.asarray(arrays["x"]),
        open=is_open,
        prompt=jnp.zeros_like(is_open),
        features=jnp.zeros((*is_open.shape, lm.config.network.D)),
        head=lambda rows: logits,
        tables=lm.denoiser.tables(lm.params),
        samples=4,
        affine=False,
    )
    wanted = arrays[f"{name}/guided_logits"]
    np.testing.assert_allclose(guided, wanted, atol=TOLERANCE[case["strategy"]])


@pytest.mark.parametrize("name", few_quick(RUNS, 1))
def test_runs_are_the_reference_s_token_for_token(name, golden, lm):
    about = golden("odd/sampler_odd.json")
    case = about["cases"][name]
    arrays = {
        key.split("/")[1]: value
        for key, value in golden("odd/sampler_odd.npz").items()
        if key.split("/")[0] == name
    }
    guidance = sj.identity()
    if case["strategy"] != "baseline":
        guidance = guidance_of(case, about["protected_tokens"])
        guidance = guidance.replace(strength=sj.linear(case["alpha"], 0.0))
    if "uniform" in arrays:
        noise = jnp.asarray(-np.log(-np.log(arrays["uniform"].astype(np.float64))), jnp.float32)

        def recorded(keys, view, vocabulary):
            return noise[jnp.round(view.progress[0] * case["steps"]).astype(jnp.int32)]

        how = {"noise": recorded, "draw": sj.temperature(case["temperature"])}
    else:
        how = {"draw": sj.temperature(0.0)}
    length = case["gen_length"]
    sampler = sj.masked(
        lm, length=length, steps=case["steps"], block=length, guidance=guidance, **how
    )
    # The rows of the reference's batch look at each other, whatever their prompts.
    prompts = np.broadcast_to(arrays["prompt"], (case["batch"], case["prompt_len"]))
    canvas = sj.canvas(prompts.tolist(), length, mask_id=about["mask_id"])
    canvas = canvas.replace(samples=case["batch"])
    *_, states = sj.run(sampler, lm.params, jax.random.key(0), canvas, trajectory=True)
    np.testing.assert_array_equal(states, arrays["states"][1:])
    np.testing.assert_array_equal(canvas.tokens, arrays["states"][0])


def test_all_recorded_cases_are_run(golden):
    about = golden("odd/sampler_odd.json")
    assert set(about["cases"]) == set(RUNS)
    assert set(about["guidance"]) == {*SETTINGS, "random_probe"}


@pytest.mark.parametrize("make", few_quick([sj.odd, sj.dpp], 1))
def test_equal_samples_are_told_apart_but_not_as_the_reference(make):
    """At temperature 0 the samples of a prompt begin alike."""

    def rows(**options):
        sampler = sj.masked(
            ToyDenoiser(),
            length=6,
            guidance=sj.chain(sj.forbid([16]), make(sj.linear(16.0, 0.0), **options)),
            draw=sj.temperature(0.0),
        )
        canvas = sj.canvas([[1, 2]], 6, mask_id=16, samples=4)
        done, _ = sj.run(sampler, toy_params(0), jax.random.key(0), canvas)
        return len({tuple(row) for row in done.tokens.tolist()})

    assert rows() == 4
    if make is sj.odd:
        assert rows(jitter=0.0) == 1


def test_orthogonal_is_gram_schmidt():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(4, 7))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    quality = random.uniform(0.5, 1, size=4)
    _, triangle = np.linalg.qr(vectors.T)  # |diagonal|: the lengths of the residuals
    wanted = np.sum((np.abs(np.diag(triangle)) * quality)[1:])
    found = orthogonal(jnp.asarray(vectors, jnp.float32), jnp.asarray(quality, jnp.float32))
    assert abs(float(found) - wanted) < 1e-5


def test_the_first_sample_is_free_and_protected_tokens_stay():
    scene = toy_params(1), toy_view(1)
    guided, base = outcome(sj.odd(4.0, protect=[3]), *scene)
    moved = np.asarray(guided - base)
    assert np.abs(moved[::2]).max() == 0
    assert np.abs(moved[1::2]).max() > 0.1
    assert np.abs(moved[..., 3]).max() == 0
    # The position that moves most moves by the strength.
    largest = np.linalg.norm(moved[1::2], axis=-1).max(axis=1)
    np.testing.assert_allclose(largest, 4.0, rtol=1e-4)


def test_history_moves_the_first_sample_too():
    params, view = toy_params(1), toy_view(1)
    past = jax.nn.one_hot(jnp.array([4]), 17)
    guided, base = outcome(sj.odd(4.0, history=past), params, view)
    assert float(jnp.abs(guided - base)[0].max()) > 0.1


def test_vendi_counts_samples_and_pulls_equal_ones_apart():
    apart, alike = jnp.eye(3), jnp.ones((3, 3)) / jnp.sqrt(3.0)
    assert abs(float(sj.guidance.vendi(apart, jnp.ones(3))) - np.log(3)) < 1e-5
    assert abs(float(sj.guidance.vendi(alike, jnp.ones(3)))) < 1e-5
    guidance = sj.guidance.pooled(sj.guidance.vendi, 4.0, features="embeddings")
    view = toy_view(2)
    view = view.replace(tokens=jnp.repeat(view.tokens[::2], 2, axis=0))
    guided, base = outcome(guidance, toy_params(2), view)
    assert bool(jnp.all(jnp.isfinite(guided)))
    assert float(jnp.abs(guided - base).max()) > 0.1


def far_apart(vectors, quality):
    return jnp.sum(jnp.square(vectors[:, None] - vectors[None]))


def last_said(features, part):
    """A pool of one's own: the last column."""
    return jnp.where(part[:, -1:], features[:, -1], 0)


def test_objectives_and_pools_of_your_own():
    guidance = sj.guidance.pooled(far_apart, 2.0, pool=last_said)
    view = toy_view(1)
    view = view.replace(open=view.open.at[:, -1].set(True))
    guided, base = outcome(guidance, toy_params(1), view)
    moved = np.abs(np.asarray(guided - base)).max(axis=(0, 2))
    assert moved[-1] > 0.1
    assert moved[:-1].max() == 0
    sj.testing.check_guidance(guidance)


def test_one_sample_alone_is_refused():
    view = toy_view(0).replace(samples=1)
    with pytest.raises(ValueError, match="must have 2 samples of each prompt"):
        outcome(sj.odd(), toy_params(0), view)
    with pytest.raises(ValueError, match="history must be vectors of 17 numbers, got "):
        outcome(sj.odd(history=jnp.zeros((2, 5))), toy_params(0), view)


def test_open_columns_outside_the_window_take_no_part():
    """Block by block: what a later block will say is not known yet."""
    params = toy_params(0)
    canvas = sj.canvas([[1, 2]], 6, mask_id=16, samples=2)
    view = sj.blocks(6, 6, 3).view(canvas, jnp.int32(0))
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 17)), jnp.float32)
    without = view.replace(attend=view.attend.at[:, 5:].set(False))
    for pooling in (sj.odd().pooling, sj.odd(pool="mean", features="embeddings").pooling):
        found, _ = pooling.vectors(logits, toy_context(params, view))
        wanted, _ = pooling.vectors(logits, toy_context(params, without))
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    written = view.replace(tokens=view.tokens.at[:, 5].set(7), open=view.open.at[:, 5].set(False))
    other, _ = sj.odd().pooling.vectors(logits, toy_context(params, written))
    base, _ = sj.odd().pooling.vectors(logits, toy_context(params, view))
    assert float(other[0, 7]) > float(base[0, 7]) + 0.1, "what is written there does"


def test_a_cap_bounds_what_any_guidance_moves():
    """As the budget of `diversity`, for guidances that have none of their own."""
    scene = toy_params(1), toy_view(1)
    guided, base = outcome(sj.capped(sj.odd(16.0), 0.1), *scene)
    moved = np.asarray(sj.guidance.kl_divergence(guided, base))
    assert moved.max() <= 0.1
    assert moved.max() > 0.09
    mild, _ = outcome(sj.odd(0.01), *scene)
    same, _ = outcome(sj.capped(sj.odd(0.01), 1.0), *scene)
    np.testing.assert_allclose(same, mild, atol=1e-6)
    own, _ = outcome(sj.sake(5.0, kl_budget=0.1), *scene)
    other, _ = outcome(sj.capped(sj.sake(5.0), 0.1), *scene)
    np.testing.assert_allclose(jax.nn.softmax(own), jax.nn.softmax(other), atol=1e-4)
