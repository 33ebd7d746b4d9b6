"""`block` against LLaDA2.0's and 2.1's own samplers, every state; then what they could not do."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import case_of, distinct, model, states_until
from test_sdar import filters

import sake_jax as sj

MASK, EOS = 155, 150
KEY = jax.random.key(3)
QUICK = {
    "sampler_llada2": ["no_full_prompt_block"],
    "sampler_llada21": ["temperature_editing"],
}
SLOW = {
    "sampler_llada2": [
        "low_threshold",
        "temperature_topk_topp",
        "default_threshold",
        "eos_block_break",
        "eos_early_stop",
        "prompt_remainder",
        "temperature_1",
        "two_steps",
    ],
    "sampler_llada21": [
        "default",
        "editing",
        "editing_prompt_remainder",
        "eos_early_stop",
        "no_post_steps",
        "transfer_two",
    ],
}
CASES = [
    pytest.param(file, case, marks=pytest.mark.slow if cases is SLOW else ())
    for cases in (QUICK, SLOW)
    for file, names in cases.items()
    for case in names
]


def replayed(golden, file: str, case: str):
    """The sampler that has the reference's choices, the canvas, and what was recorded."""
    args, arrays = case_of(golden, f"llada2/{file}", case)
    block, edit = args["block_length"], args.get("editing_threshold")
    prompt, total = arrays["prompt"][0].tolist(), arrays["states"].shape[1]
    start = sj.canvas([prompt], total - len(prompt) // block * block, mask_id=MASK, align=block)
    length = total - start.generation_start
    per_block = args.get("steps") or block // args.get("num_to_transfer", 1)
    sampler = sj.block(
        model("llada2"),
        length=length,
        steps=length // block * per_block,
        block=block,
        draw=filters(args),
        process=sj.identity_process() if edit is None else sj.editing_process(draws_mask=True),
        reveal=sj.reveal.dynamic(args["threshold"]),
        # At temperature 0 the draw is certain, and the reference judges by the plain chances.
        confidence="drawn" if args["temperature"] else "guided",
        edit=edit,
        edit_steps=args.get("max_post_steps", 16),
        pace="whole",
    )
    if "uniform" in arrays:
        sampler = sampler.replace(noise=recorded_noise(sampler, start, arrays))
    return sampler, start, arrays


def recorded_noise(sampler, start, arrays):
    """What was recorded at each call, at the steps of the plan that it was taken at."""
    plan, at, place = sampler.plan, jnp.int32(0), []
    states = jnp.asarray(arrays["states"])
    for before, after in itertools.pairwise(states):
        place.append(int(at))
        written = (after == MASK) | (jnp.arange(after.size) >= start.generation_start)
        is_open = start.open & written[None]
        if plan.edits is None or (before == after).all():
            is_open = is_open & (after == MASK)[None]
        at = plan.next_step(start.replace(tokens=after[None], open=is_open), at)
    uniform = np.full((plan.steps, *arrays["uniform"].shape[1:]), 0.5)
    uniform[place] = arrays["uniform"]
    noise = jnp.asarray(-np.log(-np.log(uniform)), jnp.float32)[:, None]

    def recorded(keys, view, vocabulary):
        return noise[jnp.round(view.progress[0] * plan.steps).astype(jnp.int32)]

    return recorded


@pytest.mark.parametrize(("file", "case"), CASES)
def test_llada2(file, case, golden):
    sampler, start, arrays = replayed(golden, file, case)
    states = distinct(states_until(sampler, model("llada2").params, start)[:, 0])
    theirs = distinct(arrays["states"])
    assert len(theirs) > 2
    # At an end token they go no further, and leave noise: ours goes on unless it is told to stop.
    ended = (theirs[-1] == MASK).any()
    np.testing.assert_array_equal(states[: len(theirs)] if ended else states, theirs)


def test_all_recorded_cases_are_run(golden):
    for file in QUICK:
        assert set(golden(f"llada2/{file}.json")["cases"]) == {*QUICK[file], *SLOW[file]}


def test_edits_are_the_same_however_a_run_is_driven_and_in_company():
    """A row that is written early waits for the steps that edit, so others change nothing."""
    lm = model("llada2")
    sampler = sj.block(
        lm,
        length=8,
        block=4,
        reveal=sj.reveal.dynamic(0.3),
        draw=sj.temperature(0.8),
        edit=0.2,
        edit_steps=2,
        pace="whole",
    )
    assert sampler.plan.steps == 2 * (4 + 2)
    canvas = lambda prompts: sj.canvas(  # noqa: E731
        prompts, 8, mask_id=MASK, pad_id=0, align=4, samples=3, positions="tokens"
    )
    start = canvas([[1, 2, 3, 4, 5], [6, 7]])
    run, info = sj.run(sampler, lm.params, KEY, start)
    until, *_ = sj.run_until(sampler, lm.params, KEY, start)
    tokens = np.asarray(run.tokens)
    np.testing.assert_array_equal(tokens, until.tokens)
    assert (tokens[:, start.generation_start :] != MASK).all()
    assert not bool(jnp.any(run.open)), "all windows are closed in the end"
    assert int(jnp.sum(info.revealed)) > int(jnp.sum(start.open)), "something was edited"
    alone, _ = sj.run(sampler, lm.params, KEY, canvas([[1, 2, 3, 4, 5]]))
    np.testing.assert_array_equal(tokens[:3], alone.tokens)
