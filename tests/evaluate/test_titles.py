"""What runs are called, and whose numbers stand beside them."""

import dataclasses
import sys

import numpy as np
import pytest

import sake_jax as sj
import sake_jax.metrics.texts as measuring
from conftest import GOLDENS
from sake_jax.evaluate.presets import LLADA, preset
from sake_jax.evaluate.report import report
from sake_jax.evaluate.results import Results
from sake_jax.evaluate.titles import printed, title, titles
from sake_jax.metrics.judge import Perplexity

ROW = preset("sake-0.2")
ELSEWHERE = "path/to/LLaDA-8B-Base"


def made(folder, *, task="humaneval", chat=False, text="return 1", checksum=1, **about):
    """A run of one problem with 32 wrong answers."""
    about_task = {"name": task, "problems": 1, "rules": ["tests"], "checksum": checksum}
    settings = {"task": about_task, "samples": 32, "seed": 0, "chat": chat, "about": about}
    line = {"problem": "p", "place": 0, "sample": 0, "text": text, "ended": "length", "cut": 0}
    line |= {"evaluations": 4, "correct": {"tests": False}, "answer": {"tests": text}, "why": "no"}
    return Results(folder, settings, {"p": [line] * 32})


def changed(**changes):
    return dataclasses.asdict(dataclasses.replace(ROW.request, **changes))


@pytest.mark.parametrize(
    ("about", "name", "theirs"),
    [
        ({"model": LLADA}, "sake-0.2", True),
        ({"model": LLADA, "request": changed()}, "sake-0.2", True),
        ({"model": ELSEWHERE}, "sake-0.2", True),
        ({"model": "tinystories"}, "sake-0.2 (model tinystories)", False),
        ({"model": "a/LLaDA-8B-Instruct"}, "sake-0.2 (model LLaDA-8B-Instruct)", False),
        ({}, "sake-0.2 (model without a name)", False),
        ({"model": LLADA, "chat": True}, "sake-0.2 (as a chat)", False),
        ({"model": LLADA, "request": changed(steps=64)}, "sake-0.2 (steps 64)", False),
        (
            {"model": LLADA, "request": changed(strength=0.5, bandwidth=3.0)},
            "sake-0.2 (strength 0.5, bandwidth 3.0)",
            True,
        ),
        (
            {"model": "tinystories", "request": changed(length=8, block=8)},
            "sake-0.2 (model tinystories, length 8, block 8)",
            False,
        ),
    ],
)
def test_the_papers_numbers_stand_beside_the_papers_model_only(about, name, theirs, tmp_path):
    run = made(tmp_path, preset="sake-0.2", **about)
    assert title(run) == name
    assert bool(printed(run)) is theirs
    text = report([run], tmp_path / "out", ks=(1, 32))
    assert f"| {name} | 0.000 (0.000 to 0.000) |" in text
    assert ("| as the paper prints | 0.320 | 0.560 |" in text) is theirs
    assert ("paper" in text) is theirs


def test_models_and_folders_tell_runs_apart(tmp_path):
    one, two = (made(tmp_path / each, name="no guidance", model="tinystories") for each in "ab")
    other = made(tmp_path / "c", name="no guidance", model="path/ours")
    row = made(tmp_path / "d", preset="sake-0.2", model=LLADA)
    assert titles([one]) == ["no guidance"]
    same = ["no guidance, a", "no guidance, b"]
    assert titles([one, two]) == same
    far = dataclasses.replace(two, folder=tmp_path / "b" / "a")
    assert titles([one, far]) == [f"no guidance, {run.folder}" for run in (one, far)]
    named = ["no guidance (model tinystories)", "no guidance (model ours)"]
    assert titles([one, other, row]) == [*named, "sake-0.2 (model LLaDA-8B-Base)"]
    assert printed(row), "the paper's model, named"
    text = report([one, two], tmp_path / "out")
    assert all(text.count(name) == 3 for name in same), "in every table"


def test_runs_of_different_problems_are_told(tmp_path):
    one, same = made(tmp_path / "a"), made(tmp_path / "b")
    told = "not of the same problems and prompts"
    assert told not in report([one, same], tmp_path)
    assert told in report([one, made(tmp_path / "c", checksum=2)], tmp_path)


def test_a_report_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = report([made(tmp_path)], tmp_path / "out")
    assert 'pip install "sake-jax[plots]"' in text
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.md"]


def test_empty_texts_have_no_perplexity(tmp_path, monkeypatch):
    nothing = Perplexity(np.zeros(32), np.zeros(32, np.int64))
    monkeypatch.setattr(measuring, "perplexity", lambda *_: nothing)
    judge = sj.load(GOLDENS / "gpt2")
    text = report([made(tmp_path, text="")], tmp_path / "out", judge=judge)
    assert "| perplexity |" in text
    assert "nan" not in text
