"""The brainstorming experiment in small."""

import json

import jax
import numpy as np
import pytest

import letters
import sake_jax as sj
from conftest import GOLDENS
from sake_jax.experiments import texts
from sake_jax.experiments.brainstorm import (
    FRAMES,
    QUESTIONS,
    asking,
    brainstorm,
    filling,
    framed,
    items,
)
from sake_jax.generation import chat_prompts, has_chat_template
from sake_jax.metrics.semantic import minilm
from sake_jax.models import ModelConfig, TransformerConfig, init
from sake_jax.training.publish import publish

SHORT = ["a list: 1. a [gap]. 2. a [gap].", "two dogs. first, [gap]. second, [gap]. the end."]
ASKED = ["name five animals.", "name five games."]
DRAW = sj.temperature(sj.piecewise({0.0: 1.5, 0.1: 1.5}))
"""As experiments draw, so that their programs are used."""
SMALL = {"quick": True, "seeds": 1, "progress": False, "samples": 2}


@pytest.fixture(scope="module")
def lm():
    return sj.load("tinystories")


@pytest.fixture(scope="module")
def judge(tmp_path_factory, lm):
    """A folder with a causal model that knows nothing."""
    sizes = {"V": 2048, "D": 16, "N": 1, "H": 2, "K": 2, "F": 16, "head_dim": 8, "context": 128}
    network = TransformerConfig(causal=True, **sizes)
    config = ModelConfig(family="llama", network=network, bos_id=0, eos_id=0)
    folder = tmp_path_factory.mktemp("judge") / "causal"
    params = init(network, jax.random.key(0))
    return publish(config, params, lm.tokenizer.backend_tokenizer, folder)


@pytest.fixture
def few_methods(monkeypatch):
    """Those that are one program."""
    some = {name: texts.METHODS[name] for name in (texts.BASELINE, texts.CONTROL)}
    monkeypatch.setattr(texts, "METHODS", some)


@pytest.fixture
def more_methods(monkeypatch):
    """Those that look inside a canvas and across canvases, too."""
    names = (texts.BASELINE, texts.CONTROL, "SAKE", "SAKE across samples")
    monkeypatch.setattr(texts, "METHODS", {name: texts.METHODS[name] for name in names})


def test_frames_have_five_slots_that_fit_the_model(lm):
    for text in FRAMES:
        frame = framed(lm, text, 10)
        assert len(frame.slots) == 5
        assert frame.open == 50 == frame.ids.count(lm.config.mask_id)
        assert all(set(frame.ids[slot]) == {lm.config.mask_id} for slot in frame.slots)
        assert len(frame.ids) <= lm.config.network.context
    given = [token for token in frame.ids if token != lm.config.mask_id]
    assert lm.tokenizer.decode(given, skip_special_tokens=True) == FRAMES[-1].replace(" [gap]", "")


def test_slots_are_filled_and_the_frame_is_kept(lm):
    write = filling(lm, SHORT, 2, 3)
    out, groups = write(sj.sake(0.5), DRAW, 0)
    assert [len(group) for group in groups] == [2, 2]
    assert np.asarray(out.info.revealed).sum(axis=0).tolist() == [6] * 4
    for sample in groups[1]:
        first, second = sample.parts
        assert sample.before == "two dogs. first,"
        assert sample.text == f"{first}. second,{second}. the end."
    _, others = write(sj.sake(0.5), DRAW, 1)
    assert groups != others


def test_slots_need_frames_and_models_that_have_them(lm):
    with pytest.raises(ValueError, match="must have two slots or more"):
        framed(lm, "one [gap].", 3)
    with pytest.raises(ValueError, match="must have two slots or more"):
        filling(lm, list(QUESTIONS), 2, 3)
    with pytest.raises(ValueError, match="sees a whole canvas"):
        filling(sj.load(GOLDENS / "bd3lm"), list(FRAMES), 2, 3)
    with pytest.raises(ValueError, match="need a model with a mask token"):
        framed(sj.load(GOLDENS / "udlm"), FRAMES[0], 3)


def test_the_whole_experiment_with_slots(tmp_path, judge, more_methods):
    (tmp_path / "frames.txt").write_text("\n".join(SHORT))
    folder, prompts = tmp_path / "out", tmp_path / "frames.txt"
    study = brainstorm(folder, judge=judge, gap=3, prompts=prompts, **SMALL)
    assert {len(study.rows(method=method)) for method in texts.METHODS} == {2}
    for row in study.rows():
        assert 0 <= row["inside"] <= 1
        assert 0 < row["across"] <= 1
        assert ". 2. a" in row["example"]
        assert ("meaning inside" in row) == ("meaning" in row) == (minilm() is not None)
    report = (folder / "table.md").read_text()
    assert "slots of 3 tokens" in report
    assert "distinct-2 across slots of a canvas" in report
    assert ("semantic diversity across slots" in report) == (minilm() is not None)
    figures = ["frontier.png", "meaning.png"] if minilm() else ["frontier.png"]
    assert sorted(path.name for path in folder.glob("*.png")) == figures


def test_the_whole_experiment_with_questions(tmp_path, judge, few_methods):
    (tmp_path / "prompts.txt").write_text("\n".join([*ASKED, "name five toys."]))
    prompts, options = tmp_path / "prompts.txt", SMALL | {"plain": True, "length": 8}
    study = brainstorm(tmp_path / "out", judge=judge, prompts=prompts, **options)
    assert len(study.rows()) == 2 * 2
    report = (tmp_path / "out" / "table.md").read_text()
    assert "2 answers to each of 2 questions, of at most 8 tokens" in report
    assert "distinct-2 inside an answer" in report


def test_answers_are_cut_into_items(lm):
    assert items("1. a dog\n2) two cats\n - a bird\n") == ["a dog", "two cats", "a bird"]
    assert items("sure!\n1. a dog") == ["a dog"]
    assert items("a dog and 2 cats") == ["a dog and 2 cats"]
    _, groups = asking(lm, ASKED, 2, 8)(sj.identity(), DRAW, 0)
    assert [sample.before for group in groups for sample in group] == ASKED[:1] * 2 + ASKED[1:] * 2
    assert all(sample.parts == items(sample.text) for sample in groups[0])
    assert groups[0][0] != groups[0][1]


def test_models_with_a_chat_template_are_asked(tmp_path, judge, monkeypatch):
    instruct = sj.load("tinystories")
    assert not has_chat_template(instruct)
    instruct.tokenizer.chat_template = "{% for m in messages %}say: {{ m.content }}!{% endfor %}"
    assert instruct.tokenizer.decode(chat_prompts(instruct, ["a dog"])[0]) == "say: a dog!"
    monkeypatch.setattr(sj, "load", lambda name: instruct)
    monkeypatch.setattr(texts, "measure", lambda *arguments: None)
    monkeypatch.setattr("sake_jax.experiments.brainstorm.report", lambda *arguments: None)
    study = brainstorm(tmp_path, judge=judge, length=8, **SMALL)
    settings = json.loads((study.folder / "settings.json").read_text())
    assert settings["plain"]
    assert settings["prompts"] == list(QUESTIONS[:2])


def test_a_wrapped_model_fills_slots_and_answers(tmp_path):
    own = sj.wrap(
        letters.rows,
        letters.make_params(),
        mask_id=letters.MASK,
        tables=letters.tables,
        tokenizer=letters.Letters(),
    )
    (tmp_path / "asked.txt").write_text("ab [gap] cd [gap]\nb [gap] a [gap] c\n")
    options = {"quick": True, "seeds": 1, "samples": 2, "progress": False, "model": own}
    options |= {"judge": "tinystories-causal", "prompts": tmp_path / "asked.txt"}
    study = brainstorm(tmp_path / "slots", gap=3, **options)
    assert all(np.isfinite(row["perplexity"]) for row in study.rows())
    (tmp_path / "asked.txt").write_text("ab \nb a\n")
    study = brainstorm(tmp_path / "plain", plain=True, length=6, **options)
    assert {row["words"] > 0 for row in study.rows()} == {True}
