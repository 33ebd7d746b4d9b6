"""Pages of generations by every sampler, with and without a tokenizer."""

import dataclasses
import functools
import json
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import sake_jax as sj
from bytewise import byte_llada
from conftest import GOLDENS
from sake_jax.viewer import recording_of
from sake_jax.viewer.events import replay_events, row_events

KEY = jax.random.key(1)


def full(lm, sampler, prompts, **options):
    recorded = sampler.replace(record="full")
    return sj.generate(lm, recorded, prompts, key=KEY, trajectory=True, **options)


def held(page):
    """The payload of a page."""
    return json.loads(re.search(r'id="payload">(.*?)</script>', page, re.S)[1])


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return byte_llada(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def spoken(lm):
    """Two prompts by a model with a tokenizer."""
    sampler = sj.masked(lm, length=4, block=2, guidance=sj.sake(1.0), draw=sj.temperature(0.9))
    return full(lm, sampler, ["a<b", "c"], samples=2)


@functools.cache
def infilled():
    lm = sj.load(GOLDENS / "llada")
    hole = lm.config.mask_id
    sampler = sj.masked(lm, length=6, guidance=sj.sake(1.0))
    return full(lm, sampler, [[1, hole, hole, 5, 6]], infill=True)


def uniform():
    lm = sj.load(GOLDENS / "udlm")
    return full(lm, sj.ancestral(lm, length=6, steps=8), [[]], cond=[1])


def remasked():
    lm = sj.load(GOLDENS / "mdlm")
    sampler = sj.ancestral(lm, length=6, steps=8, process=sj.remasking(0.9))
    return full(lm, sampler, [[1, 2]], samples=2)


@functools.cache
def by_blocks():
    lm = sj.load(GOLDENS / "bd3lm")
    size = lm.config.network.block_size
    sampler = sj.block(lm, length=2 * size, guidance=sj.sake(1.0))
    return full(lm, sampler, [list(range(1, size + 2))])


def check(out):
    """The page's events are the trajectory."""
    run = recording_of(out, "this", out.tokenizer)
    steps = np.flatnonzero(run.taken().any(axis=1))
    tree = held(out.to_html())
    (shown,) = tree["runs"]
    assert shown["columns"] == out.trajectory.shape[-1]
    for row in range(len(out.rows)):
        changes = row_events(run, row, steps)
        again = replay_events(run.blank(row), changes, len(steps))
        np.testing.assert_array_equal(again, run.trajectory[steps, row])
        told = shown["rows"][row]
        ids = [tree["ids"][at] for at in told["token"]]
        assert ids == changes.token.tolist()
        if run.mask_id is not None:  # the first noise of others is not recorded
            assert np.sum(changes.token != run.mask_id) == out.info.revealed[:, row].sum()


def test_masked_decoding_can_be_watched(spoken):
    check(spoken)


@pytest.mark.slow
@pytest.mark.parametrize("made", [infilled, uniform, remasked, by_blocks])
def test_every_sampler_can_be_watched(made):
    check(made())


@pytest.mark.slow
def test_prompts_stand_where_the_canvas_had_them():
    run = recording_of(infilled(), "this")
    hole = run.mask_id
    assert run.first == [1]
    assert run.outside(0).tolist() == [True, False, False, False, False, False]
    assert run.blank(0)[1:].tolist() == [1, hole, hole, 5, 6]
    run = recording_of(by_blocks(), "this")
    size = -run.first[0]
    assert len(run.prompts[0]) == size + 1, "one token has no whole block"
    assert run.blank(0)[:2].tolist() == [size + 1, run.mask_id]


def test_texts_come_from_the_models_own_tokenizer(spoken):
    page = spoken.to_html(spoken, names=("pushed", "free"))
    tree = held(page)
    assert tree["words"]
    assert [run["name"] for run in tree["runs"]] == ["pushed", "free"]
    assert [tree["pieces"][at] for at in tree["prompts"][0]["tokens"]] == ["<257>", "a", "<", "b"]
    assert [prompt["first"] for prompt in tree["prompts"]] == [-4, -2]
    assert "<title>a&lt;b (and 1 more)</title>" in page
    assert [run["name"] for run in held(spoken.to_html())["runs"]] == ["guided"]
    with pytest.raises(ValueError, match=r"another Generation, .*to_html\(\).save\(path\)"):
        spoken.to_html("page.html")


def test_another_tokenizer_may_be_given(spoken, words):
    tree = held(spoken.to_html(tokenizer=words))
    assert tree["prompts"][0]["tokens"] == [0, 1, 2]
    assert tree["pieces"][:3] == [" the", " dog", "s"]


def test_repellers_are_columns_of_the_canvas(spoken):
    (run,) = held(spoken.to_html())["runs"]
    for row, prompt in ((0, 4), (3, 2)):
        told = run["rows"][row]["details"].values()
        columns = {column for _, _, repel, *_ in told for column in repel[::2]}
        assert columns
        assert columns <= set(range(-prompt, 4)), "the prompt's tokens, and four written ones"


@pytest.mark.parametrize("scope", [pytest.param("batch", marks=pytest.mark.slow), "both"])
def test_samples_that_repel_each_other_name_each_other(lm, scope):
    guidance = sj.sake(1.0, scope=scope, self_term=0.0)
    sampler = sj.masked(lm, length=2, guidance=guidance, draw=sj.temperature(0.9))
    (run,) = held(full(lm, sampler, ["ab", "c"], samples=3).to_html())["runs"]
    for row, told in enumerate(run["rows"]):
        for _, _, rows, _, samples in told["details"].values():
            assert set(samples[::2]) <= {0, 1, 2} - {row % 3}, "of this prompt, never itself"
            assert bool(rows) == (scope == "both")
    everyone = [told["details"].values() for told in run["rows"]]
    assert all(any(details[4] for details in told) for told in everyone)


@pytest.mark.parametrize(
    ("lost", "got"),
    [
        ({"info": None}, "info=None"),
        ({"trajectory": None}, "trajectory=None"),
        ({"info": "brief"}, 'a sampler without record="full"'),
    ],
)
def test_what_was_not_recorded_cannot_be_shown(spoken, lost, got):
    if lost.get("info") == "brief":
        lost = {"info": spoken.info.replace(candidates=None)}
    remedy = 'make its sampler with record="full", and pass trajectory=True to generate'
    with pytest.raises(ValueError, match=f"must be recorded to be shown, got '{got}.*{remedy}"):
        dataclasses.replace(spoken, **lost).to_html()


def test_texts_need_a_tokenizer_and_ids_none(spoken):
    model = spoken.settings["model"] | {"folder": None}
    lost = dataclasses.replace(spoken, settings=spoken.settings | {"model": model})
    with pytest.raises(ValueError, match=r"pass tokenizer=lm\.tokenizer"):
        lost.to_html()
    options = spoken.settings["options"] | {"prompts": [[257, 64, 27, 65], [257, 66]]}
    bare = dataclasses.replace(lost, settings=lost.settings | {"options": options})
    page = bare.to_html()
    assert "<title>4 tokens (and 1 more)</title>" in page
    assert held(page)["pieces"][0] == "257"


def test_the_library_alone_does_not_load_the_viewer():
    program = "import sys, sake_jax; print([n for n in sys.modules if 'sake_jax.viewer' in n])"
    printed = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    assert printed.stdout.strip() == "[]", printed.stderr
