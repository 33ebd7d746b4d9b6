"""`block` against SDAR's own sampler, every state; then what it could not do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import case_of, distinct, model, states_until

import sake_jax as sj

MASK, V = 120, 128
KEY = jax.random.key(3)
RULES = {
    "low_confidence_static": lambda args: sj.reveal.confidence,
    "low_confidence_dynamic": lambda args: sj.reveal.dynamic(args["confidence_threshold"]),
    "sequential": lambda args: sj.reveal.leftmost,
}
QUICK = ["corrected_prompt_remainder_two_steps", "dynamic_no_prefill"]
SLOW = [
    "sequential",
    "static_uneven",
    "dynamic_fallback",
    "dynamic_threshold",
    "static_prompt_remainder",
    "static_steps_eq_block",
    "static_two_steps",
    "stop_token",
]
CASES = [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)]


def filters(args) -> sj.Guidance:
    """Temperature, then top-k, then top-p, as the reference has them."""
    shaping = [sj.temperature(args["temperature"])]
    shaping += [sj.top_k(args["top_k"])] if args.get("top_k") else []
    shaping += [sj.top_p(args["top_p"])] if args.get("top_p", 1.0) < 1 else []
    return sj.chain(*shaping)


def by_block(recorded, starts, first: int, block: int, steps_per_block: int):
    """Places records, one per denoising call, at the steps of the plan they were taken at."""
    blocks = (np.asarray(starts) - first) // block
    place = [b * steps_per_block + np.sum(blocks[:at] == b) for at, b in enumerate(blocks)]
    placed = np.full((max(place) + 1, *recorded.shape[1:]), 0.5)
    placed[place] = recorded
    return placed


def replayed(golden, case, cache="exact"):
    """The sampler that has the reference's choices, the canvas, and what was recorded."""
    args, arrays = case_of(golden, "sdar/sampler_sdar", case)
    block, per_block = args["block_length"], args["denoising_steps"]
    prompt, total = arrays["prompt"][0].tolist(), arrays["states"].shape[1]
    start = sj.canvas([prompt], total - len(prompt) // block * block, mask_id=MASK, align=block)
    starts = [call[0] for call in arrays["calls"].tolist() if not call[2]]
    uniform = by_block(
        arrays["uniform"].astype(np.float64), starts, start.generation_start, block, per_block
    )
    noise = jnp.asarray(-np.log(-np.log(uniform)), jnp.float32)[:, None]
    length = total - start.generation_start
    steps = length // block * per_block

    def recorded(keys, view, vocabulary):
        return noise[jnp.round(view.progress[0] * steps).astype(jnp.int32)]

    sampler = sj.block(
        model("sdar"),
        length=length,
        steps=steps,
        block=block,
        draw=filters(args),
        process=sj.identity_process(),
        reveal=RULES[args["remasking_strategy"]](args),
        confidence="drawn",
        pace="whole",
        cache=cache,
        noise=recorded,
    )
    return sampler, start, arrays, args


@pytest.mark.parametrize("case", CASES)
def test_sdar(case, golden):
    sampler, start, arrays, args = replayed(golden, case)
    states = distinct(states_until(sampler, model("sdar").params, start)[:, 0])
    theirs = distinct(arrays["states"])
    assert len(theirs) > 3
    # At a stop token they go no further, and leave noise: ours goes on unless it is told to stop.
    ended = "stopping_criteria_idx" in args
    np.testing.assert_array_equal(states[: len(theirs)] if ended else states, theirs)


def test_all_recorded_cases_are_run(golden):
    assert set(golden("sdar/sampler_sdar.json")["cases"]) == {*QUICK, *SLOW}


def test_a_stop_token_ends_a_row_at_once(golden):
    """The reference looks only after a whole block; what stands before the stop is the same."""
    sampler, start, arrays, args = replayed(golden, "stop_token")
    stops = args["stopping_criteria_idx"]
    done, *_ = sj.run_until(sampler, model("sdar").params, KEY, start, stop=sj.end_tokens(stops))
    tokens, theirs = np.asarray(done.tokens)[0], arrays["states"][-1]
    end = 1 + np.flatnonzero(np.isin(tokens, stops))[0]
    np.testing.assert_array_equal(tokens[:end], theirs[:end])
    assert (tokens[12:] == MASK).all()


def test_filters_and_the_table_of_quotas(golden):
    g = golden("sdar/golden_filter.npz")
    for name, guidance in (("top_k5", sj.top_k(5)), ("top_p08", sj.top_p(0.8))):
        logits = jnp.asarray(g["logits"])[None]
        ours = sj.guided_logits(
            guidance,
            tokens=jnp.zeros(logits.shape[:2], jnp.int32),
            features=logits,
            head=lambda rows: rows,
            tables=sj.Tables(jnp.eye(V), jnp.eye(V)),
            open=jnp.ones(logits.shape[:2], bool),
            progress=0.0,
        )[0]
        kept = np.isfinite(g[name])
        np.testing.assert_array_equal(np.asarray(ours)[0] > -1e29, kept)
    plan = sj.blocks(8, 3, pace="whole")
    view = lambda step: plan.view(sj.canvas([[1]], 8, mask_id=MASK), jnp.int32(step))  # noqa: E731
    assert [int(view(step).quota[0]) for step in range(3)] == g["num_transfer_8_3"].tolist()


def test_the_cache_changes_no_token_and_no_company_does():
    """Prompts of other lengths, that end inside a block, in one batch; a block not the model's."""
    lm = model("sdar")
    prompts = [[1, 2, 3, 4, 5], [6], list(range(7, 20)), []]
    guidance = sj.chain(sj.classifier_free(0.5), sj.top_p(0.9), sj.sake(0.5))
    make = lambda cache: sj.block(lm, length=12, block=6, cache=cache, guidance=guidance)  # noqa: E731
    canvas = lambda prompts: sj.canvas(  # noqa: E731
        prompts, 12, mask_id=MASK, pad_id=0, align=6, samples=2, positions=lm.config.positions
    )
    start = canvas(prompts)
    tokens = np.asarray(sj.run(make("exact"), lm.params, KEY, start)[0].tokens)
    np.testing.assert_array_equal(tokens, sj.run(make("none"), lm.params, KEY, start)[0].tokens)
    assert (tokens[:, start.generation_start :] != MASK).all()
    alone = canvas(prompts[:1]).replace(prompt_id=jnp.array([0, 0]))
    single = np.asarray(sj.run(make("exact"), lm.params, KEY, alone)[0].tokens)
    np.testing.assert_array_equal(tokens[:2, start.generation_start :], single)
    assert sj.block(lm, length=8).plan.width == 4
