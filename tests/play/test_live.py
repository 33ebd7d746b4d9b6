"""A live run tells what `generate` writes, and no number makes it compile again."""

import dataclasses

import jax
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.play import Draft, LiveRun
from tiers import few_quick

NOTHING = -1


def told(run):
    """{name: (M, N) token ids in the end} of a run, from its events alone; and the events."""
    begin, *steps, end = run.events()
    assert (begin["kind"], end) == ("begin", {"kind": "end"})
    assert {event["kind"] for event in steps} == {"step"}
    ids = list(run.pieces.numbers)
    texts = {}
    for at, about in enumerate(begin["runs"]):
        tokens = np.full((begin["samples"], about["columns"]), NOTHING)
        for column, token in enumerate(begin["prompts"][0]["tokens"], begin["prompts"][0]["first"]):
            if column >= 0:  # the rest of a prompt that fills no block
                tokens[:, column] = ids[token]
        for event in steps:
            part = event["runs"][at]
            tokens[part["row"], part["column"]] = [ids[token] for token in part["token"]]
        texts[about["name"]] = tokens
    return texts, steps


def generated(lm, request, prompt, draft):
    """{name: (M, N)} what `generate` writes, with NOTHING where it left noise."""
    found = {}
    for each in (request, request.unguided):
        key = jax.random.key(draft.seed)
        out = sj.generate(lm, each.build(lm), [prompt], samples=draft.samples, key=key)
        noise = out.tokens[0] == (NOTHING if lm.config.mask_id is None else lm.config.mask_id)
        found[each.name] = np.where(noise, NOTHING, out.tokens[0])
    return found


def same(texts, wanted):
    assert list(texts) == list(wanted)
    for name, tokens in wanted.items():
        np.testing.assert_array_equal(texts[name], tokens, err_msg=name)


def total(steps, what):
    return sum(event.get(what, 0) for event in steps)


@pytest.mark.parametrize("guidance", ["sake", "spread"])
def test_it_writes_what_generate_writes_and_ends_where_a_text_ends(lm, play, guidance):
    request = dataclasses.replace(play.request, guidance=guidance, block=2)
    run = LiveRun(lm, "ab", play.draft, request)
    texts, steps = told(run)
    same(texts, generated(lm, request, "ab", play.draft))
    assert len(steps) == 8
    assert all(len(part["row"]) == 2 for event in steps for part in event["runs"])
    # The first text ends early if its second token is the end.
    config = dataclasses.replace(lm.config, eos_id=int(texts[request.name][0, 1]))
    ending = dataclasses.replace(lm, config=config)
    run = LiveRun(ending, "ab", play.draft, request)
    texts, steps = told(run)
    wanted = generated(ending, request, "ab", play.draft)
    assert (wanted[request.name] == NOTHING).any()
    same(texts, wanted)
    over = [event["runs"][0]["over"][0] for event in steps]
    assert over.index(next(step for step in over if step is not None)) < 7


def test_numbers_beginnings_and_seeds_compile_nothing(lm, play):
    first = LiveRun(lm, "ab", play.draft, play.request)
    _, steps = told(first)
    assert total(steps, "compiled") >= 2, "a program with guidance and one without"
    for changes, prompt, seed in (
        ({"strength": 2.5, "temperature": 0.3}, "ab", 0),
        ({}, "ab", 7),
        ({"strength": 0.0, "temperature": 0.0}, "another", 0),  # which `generate` does greedily
    ):
        request = dataclasses.replace(play.request, **changes)
        draft = dataclasses.replace(play.draft, seed=seed)
        texts, steps = told(LiveRun(lm, prompt, draft, request))
        assert (total(steps, "traced"), total(steps, "compiled")) == (0, 0)
    same(texts, generated(lm, request, prompt, draft))


def test_bandwidths_are_numbers_too(lm, play):
    wide = dataclasses.replace(play.request, bandwidth=3.0)
    told(LiveRun(lm, "ab", play.draft, wide))
    for bandwidth in (0.5, 40.0):
        request = dataclasses.replace(wide, bandwidth=bandwidth)
        _, steps = told(LiveRun(lm, "ab", play.draft, request))
        assert (total(steps, "traced"), total(steps, "compiled")) == (0, 0)


def test_without_guidance_there_is_one_run(lm, play):
    (name,) = told(LiveRun(lm, "ab", play.draft, play.request.unguided))[0]
    assert name == "no guidance"


def test_steps_are_timed(lm, play):
    _, steps = told(LiveRun(lm, "ab", play.draft, play.request))
    assert all(part["milliseconds"] > 0 for event in steps for part in event["runs"])


def test_chances_are_those_of_generate(lm, play):
    run = LiveRun(lm, "ab", play.draft, play.request)
    _, steps = told(run)
    chances = np.zeros((2, 8))
    for event in steps:
        part = event["runs"][0]
        chances[part["row"], part["column"]] = part["chance"]
    out = sj.generate(lm, play.request.build(lm), ["ab"], samples=2, key=jax.random.key(0))
    np.testing.assert_allclose(chances, -100 * out.log_p[0], atol=0.51)


@pytest.mark.parametrize(
    "family",
    few_quick(["bd3lm", "udlm", "sdar", "dream"], quick=0),
)
def test_every_kind_of_canvas(family):
    """Blocks, models without a mask token, positions that count tokens."""
    lm = sj.load(f"tests/goldens/{family}")
    lm.__dict__["tokenizer"] = Ids()
    length = 2 * (lm.config.network.block_size or 4)
    request = sj.Request(guidance="sake", length=length)
    draft, prompt = Draft(samples=2, seed=3), [5, 6, 7]
    texts, _ = told(LiveRun(lm, prompt, draft, request))
    same(texts, generated(lm, request, prompt, draft))


class Ids:
    """A tokenizer that says ids."""

    def decode(self, ids, **options):
        return f" {ids[0]}"


def test_what_is_refused_is_refused_before_the_first_step(lm, play):
    with pytest.raises(ValueError, match="prompt 0 and 8 columns must fit the model's context"):
        LiveRun(lm, "a" * 1000, play.draft, play.request)
    with pytest.raises(ValueError, match="length must be a multiple of block"):
        LiveRun(lm, "ab", play.draft, dataclasses.replace(play.request, block=3))
    with pytest.raises(ValueError, match="lone surrogates"):
        LiveRun(lm, "\ud800", play.draft, play.request)


def test_logits_that_are_no_numbers_end_it(lm, play):
    broken = dataclasses.replace(lm, params=jax.tree.map(lambda leaf: leaf * np.nan, lm.params))
    run = LiveRun(broken, "ab", play.draft, play.request)
    with pytest.raises(ValueError, match="logits must be numbers, got 'NaN or infinity at step 0'"):
        list(run.events())
