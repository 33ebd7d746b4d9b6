"""`block` against BD3LM's own sampler, every state; then what it could not do."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import distinct, model, states_until

import sake_jax as sj
from networks import view_of
from sake_jax.models import noise_level, total_noise

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
        ({"steps": 9, "first_hitting": True}, "one step for each column"),
        ({"cache": "dual"}, "cache must be one of"),
        ({"pace": "truncated"}, "pace must be one of"),
        ({"lm": "mdlm"}, "needs a model of block diffusion, got 'NetworkDenoiser'"),
        ({"cache": "exact", "reuse": True}, "leave reuse or the cache out"),
        ({"reuse": "old"}, "reuse must be True, False or 'stale'"),
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


@pytest.fixture(scope="module")
def timed():
    """The same weights, told that they were trained to look at the time."""
    lm = model("bd3lm")
    network = dataclasses.replace(lm.config.network, time_conditioning=True)
    return dataclasses.replace(lm, config=dataclasses.replace(lm.config, network=network))


def by_the_book(lm, blocks, steps, uniform):
    """BD3LM's semi-autoregressive sampler, written down from its description, without a cache.

    Its p(x0) is kept as long as no token changes, whatever the time is.
    """
    x, states = np.array([[BOS] + [MASK] * (BLOCK - 1)]), []
    for block in range(blocks):
        if block:
            x = np.concatenate([x, np.full((1, BLOCK), MASK)], axis=1)
        p = None
        for at, t in enumerate(np.linspace(1, 0, steps)[:-1]):
            if MASK not in x:
                break
            if p is None:
                sigma = min(-np.log1p(-t) if t < 1 else np.inf, -np.log(1e-3))
                logits = np.array(lm.logits(x, sigma=[sigma]), np.float64)[:, -BLOCK:]
                logits[..., MASK] = -np.inf
                p = np.exp(logits - logits.max(axis=-1, keepdims=True))
                p /= p.sum(axis=-1, keepdims=True)
            stay = max(t - 1 / steps, 0) / t
            q = p * (1 - stay)
            q[..., MASK] = stay
            drawn = np.argmax(q / (TINY - np.log(uniform[block * steps + at] + TINY)), axis=-1)
            after = x.copy()
            after[:, -BLOCK:] = np.where(x[:, -BLOCK:] == MASK, drawn, x[:, -BLOCK:])
            p = None if (after != x).any() else p
            x = after
            states.append(np.pad(x[0], (0, blocks * BLOCK - x.shape[1]), constant_values=MASK))
    return np.array(states)


def with_noise(lm, blocks, steps, uniform, **options):
    noise = jnp.asarray(-np.log(TINY - np.log(uniform + TINY)), jnp.float32)

    def recorded(keys, view, vocabulary):
        at = jnp.round(view.progress[0] * blocks * steps).astype(jnp.int32)
        return jnp.broadcast_to(noise[at], (len(keys), *noise.shape[2:]))

    options = {"pace": "stretched", "steps": blocks * steps, "noise": recorded} | options
    return sj.block(lm, length=blocks * BLOCK, **options)


def test_with_time_conditioning_the_reference_keeps_an_old_prediction(timed):
    """Token for token, with its noise level and its stale p(x0); without that, another text."""
    blocks, steps = 3, 24
    uniform = np.random.default_rng(3).random((blocks * steps, 1, BLOCK, 260))
    theirs = by_the_book(timed, blocks, steps, uniform)
    start = canvas([[BOS]], blocks * BLOCK)
    ours = with_noise(timed, blocks, steps, uniform, reuse="stale")
    assert ours.plan.cache == "none", "no other is right here"
    states = states_until(ours, timed.params, start)[:, 0]
    theirs = np.concatenate([np.asarray(start.tokens), theirs])
    np.testing.assert_array_equal(distinct(states), distinct(theirs))
    scanned, _ = sj.run(ours, timed.params, KEY, start)
    np.testing.assert_array_equal(scanned.tokens[0], theirs[-1])
    fresh = with_noise(timed, blocks, steps, uniform)
    assert (states_until(fresh, timed.params, start)[-1, 0] != theirs[-1]).any()


def test_an_old_prediction_is_a_rows_own(timed):
    """What the neighbours of a row do must not decide which time it is read at."""
    sampler = sj.block(timed, length=8, steps=32, reuse="stale")
    start = canvas([[BOS], [1, 2], [3]], 8)
    together = np.asarray(sj.run(sampler, timed.params, KEY, start)[0].tokens)
    for row in range(3):
        alone = jax.tree.map(lambda leaf, at=row: leaf[at : at + 1] if leaf.ndim else leaf, start)
        tokens = sj.run(sampler, timed.params, KEY, alone)[0].tokens
        np.testing.assert_array_equal(together[row : row + 1], tokens)


def test_reuse_changes_nothing_where_the_time_is_not_looked_at():
    """Also between blocks: a window that moved is read, though the canvas stayed as it was."""
    lm, start = model("bd3lm"), canvas([[BOS], [1, 2]], 8, samples=2)
    runs = [
        sj.run(sj.block(lm, length=8, steps=32, **options), lm.params, KEY, start)[0].tokens
        for options in ({"reuse": True}, {"cache": "none"}, {"reuse": "stale"}, {})
    ]
    for tokens in runs[1:]:
        np.testing.assert_array_equal(runs[0], tokens)


def test_the_noise_level_is_the_references(timed):
    times = jnp.array([0.0, 0.5, 0.99, 0.9995, 1.0])
    theirs = np.minimum(-np.log1p(-np.array([0, 0.5, 0.99, 0.9995])), -np.log(1e-3))
    np.testing.assert_allclose(noise_level(timed.config.network, times)[:4], theirs, rtol=1e-5)
    assert float(noise_level(timed.config.network, times)[4]) == pytest.approx(-np.log(1e-3))
    mdlm = noise_level(model("mdlm").config.network, times)
    np.testing.assert_array_equal(mdlm, total_noise(times))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"cache": "exact"},
            "cache='exact' needs a network that does not look .*; leave cache out",
        ),
        ({"first_hitting": True}, "pass first_hitting=False, and steps="),
        ({"reuse": True}, "pass reuse='stale'"),
    ],
)
def test_what_a_model_that_looks_at_the_time_cannot_have(options, message, timed):
    with pytest.raises(ValueError, match=message) as error:
        sj.block(timed, length=8, **options)
    assert "DiTConfig" not in str(error.value)
    assert sj.block(timed, length=8).plan.steps == 8
