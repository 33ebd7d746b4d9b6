"""`block` against BD3LM's own sampler, every state; then what it could not do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import distinct, model, states_until

import sake_jax as sj
from networks import view_of

MASK, BOS, BLOCK = 259, 7, 4
KEY = jax.random.key(5)
TINY = 1e-10


def canvas(prompts, length, **options):
    return sj.canvas(prompts, length, mask_id=MASK, pad_id=0, align=BLOCK, **options)


def by_update(recorded, steps_per_block, updates, steps):
    """Places records, one per update, at the steps of the plan they were taken at."""
    placed, at = np.zeros((steps, *recorded.shape[1:]), np.float64), 0
    for block, count in enumerate(updates):
        begin = block * steps_per_block
        placed[begin : begin + count] = recorded[at : at + count]
        at += count
    return placed


def updates_of(states):
    """How many updates the reference made in each block: a state ends with its block."""
    widths = (states >= 0).sum(axis=1)
    return [int(np.sum(widths == width)) for width in np.unique(widths)]


def replayed(golden, case):
    arrays = golden("bd3lm/sampler_bd3lm.npz")
    about = golden("bd3lm/sampler_bd3lm.json")["cases"][case]
    mine = {k.split("/")[1]: v for k, v in arrays.items() if k.startswith(f"{case}/")}
    hits, length = about["first_hitting"], about["seqlen"]
    steps = length if hits else about["num_steps"] * about["blocks"]
    place = lambda part: by_update(  # noqa: E731
        part, steps // about["blocks"], updates_of(mine["states"]), steps
    )
    uniform = mine["uniform"].astype(np.float64)
    noise = place(-np.log(TINY - np.log(uniform + TINY)))[:, None]

    def recorded(keys, view, vocabulary):
        index = jnp.round(view.progress[0] * steps).astype(jnp.int32)
        return jnp.asarray(noise, jnp.float32)[index]

    options = {"noise": recorded, "cache": "exact" if about["kv_cache"] else "none"}
    if about["nucleus_p"] < 1:
        options["draw"] = sj.top_p(about["nucleus_p"], crossing=False)
    if not hits:
        options |= {"first_hitting": False, "steps": steps, "pace": "stretched"}
    sampler = sj.block(model("bd3lm"), length=length, **options)
    if hits:
        order = place(mine["first_hitting_index"])

        def chosen(logits, drawn, view, key):
            index = jnp.round(view.progress[0] * steps).astype(jnp.int32)
            is_open = view.window(view.open)
            rank = jnp.cumsum(is_open, axis=1) - 1
            return is_open & (rank == jnp.asarray(order, jnp.int32)[index])

        sampler = sampler.replace(reveal=sj.reveal.as_rule(chosen))
    return sampler, mine


CASES = ["fh_cache", "fh_nocache_nucleus", "fh_cache_sliding", "ddpm_cache", "ddpm_nocache"]


@pytest.mark.parametrize("case", CASES)
def test_bd3lm(case, golden):
    sampler, arrays = replayed(golden, case)
    start = canvas([[BOS]], arrays["output"].shape[1])
    found = states_until(sampler, model("bd3lm").params, start)
    np.testing.assert_array_equal(found[-1], arrays["output"])
    # Their text grows by a block at a time, ours is noise from the beginning.
    theirs = np.where(arrays["states"] < 0, MASK, arrays["states"])
    theirs = np.concatenate([theirs, arrays["output"]])
    np.testing.assert_array_equal(distinct(found[:, 0]), distinct(theirs))


def test_all_recorded_cases_are_run(golden):
    assert set(golden("bd3lm/sampler_bd3lm.json")["cases"]) == set(CASES)


def test_one_step_has_the_recorded_distribution(golden):
    g, lm = golden("bd3lm/golden_step.npz"), model("bd3lm")
    t, dt = g["t"][:, 0], float(g["dt"])
    view = view_of(lm, g["x"], start=BLOCK, width=BLOCK, time=jnp.asarray(t))
    view = view.replace(next_time=jnp.asarray(t - dt, jnp.float32), mask_id=jnp.int32(MASK))
    features, _ = lm.denoiser.read(lm.params, view, None)
    log_q = sj.absorbing().log_q(lm.denoiser.head(lm.params, view.window(features)), view)
    theirs = g["q_xs"] / g["q_xs"].sum(axis=-1, keepdims=True)
    masked = g["x"][:, BLOCK:] == MASK
    assert masked.any()
    np.testing.assert_allclose(jax.nn.softmax(log_q)[masked], theirs[masked], atol=2e-6)


def test_the_cache_changes_no_token_and_prompts_may_end_inside_a_block():
    """Also in batches, beyond the context, and under guidance, which has a cache of its own."""
    lm = model("bd3lm")
    guidance = sj.chain(sj.classifier_free(0.5), sj.sake(0.5))
    block = lambda cache: sj.block(lm, length=20, cache=cache, guidance=guidance)  # noqa: E731
    prompts = [[1, 2, 3, 4, 5], [6], [7, 8, 9, 10, 11, 12, 13, 14, 15]]
    start = canvas(prompts, 20, samples=2)
    assert start.generation_start == 8
    assert start.tokens.shape[1] > lm.config.network.context
    runs = {cache: sj.run(block(cache), lm.params, KEY, start)[0] for cache in ("exact", "none")}
    tokens = np.asarray(runs["exact"].tokens)
    np.testing.assert_array_equal(tokens, runs["none"].tokens)
    assert (tokens[:, 9:] != MASK).all()
    for row, prompt in enumerate(prompts):
        given = np.asarray(start.prompt)[2 * row]
        np.testing.assert_array_equal(tokens[2 * row][given], prompt)
    alone = canvas(prompts[1:2], 20, samples=2).replace(prompt_id=jnp.array([1, 1]))
    tokens_alone = sj.run(block("exact"), lm.params, KEY, alone)[0].tokens
    np.testing.assert_array_equal(tokens[2:4, 8:], tokens_alone)


def test_first_hitting_and_small_steps_of_time_end_without_noise_under_guidance():
    lm = model("bd3lm")
    start = canvas([[BOS], []], 8, samples=2)
    guidance = sj.chain(sj.top_p(0.9), sj.sake(1.0))
    for options in ({}, {"first_hitting": False, "steps": 40}):
        sampler = sj.block(lm, length=8, guidance=guidance, **options)
        done, info = sj.run(sampler, lm.params, KEY, start)
        assert (np.asarray(done.tokens) != MASK).all()
        assert bool(jnp.all(info.finite))
        assert np.all(np.asarray(done.log_p)[np.asarray(start.open)] < 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 6}, "length must be a multiple of block"),
        ({"steps": 9}, "one step for each column"),
        ({"cache": "dual"}, "cache must be one of"),
        ({"pace": "truncated"}, "pace must be one of"),
        ({"lm": "mdlm"}, "needs a model of block diffusion"),
    ],
)
def test_bad_options(change, message):
    options = {"lm": "bd3lm", "length": 8} | change
    with pytest.raises(ValueError, match=message):
        sj.block(model(options.pop("lm")), **options)


def test_a_canvas_must_be_aligned():
    lm = model("bd3lm")
    start = sj.canvas([[1, 2]], 8, mask_id=MASK)
    with pytest.raises(ValueError, match="align=4"):
        sj.run(sj.block(lm, length=8), lm.params, KEY, start)
