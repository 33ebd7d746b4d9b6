"""Runs that version 0.1 saved are replayed with the same tokens, though modules have moved."""

import json

import numpy as np
import pytest
from replay import model

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.generation.settings import rebuild

SAVED = sorted((GOLDENS / "version_0_1").glob("*.json"))


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_a_run_of_version_0_1_is_replayed(path):
    saved = json.loads(path.read_text())
    assert saved["settings"]["versions"]["sake-jax"] == "0.1.0"
    lm = model(path.stem.split("_")[0])
    np.testing.assert_array_equal(sj.replay(saved["settings"], lm).tokens, saved["tokens"])


def test_there_are_runs_of_every_kind_of_sampler():
    assert {path.stem for path in SAVED} >= {"llada_sake", "mdlm", "bd3lm", "udlm", "dream"}


def test_another_model_is_refused():
    saved = json.loads(SAVED[0].read_text())
    other = model("dream" if SAVED[0].stem != "dream" else "llada")
    with pytest.raises(ValueError, match="the model must be the one that was saved"):
        sj.replay(saved["settings"], other)


@pytest.mark.parametrize(
    "described",
    [
        {}, {"class": 5}, {"class": "sake_jax.node:Node"}, {"class": "nowhere"}, {"tuple": 5},
        {"class": "sake_jax.guidance.shaping:Temperature", "fields": {"value": 1, "other": 2}},
        {"class": "sake_jax.guidance.shaping:Temperature", "fields": [1]}, {"array": [[1], [1, 2]]},
        {"array": [1], "dtype": "nothing"}, {"key": "x", "impl": "y"}, {"function": None},
        {"dict": [1]}, {"function": "os:system"}, {"class": "sake_jax.checks:np.load"},
    ],
)  # fmt: skip
def test_settings_that_nobody_wrote_are_refused_in_words(described):
    with pytest.raises(ValueError, match=r".+, got .+; .+"):
        rebuild(described)


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"model": {}}', "\x00"])
def test_folders_that_hold_no_run_are_refused_in_words(content, tmp_path):
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(ValueError, match=r".+, got .+; .+"):
        sj.replay(tmp_path)
