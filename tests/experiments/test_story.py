"""The stories' experiment in small, and the statistics it shares with brainstorming."""

import json

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import sake_jax as sj
from conftest import GOLDENS
from sake_jax import cli
from sake_jax.experiments import texts, texts_report
from sake_jax.experiments.story import BEGINNINGS, story
from sake_jax.experiments.texts import METHODS, Sample
from sake_jax.metrics import distinct, load_judge, perplexity, sample_entropy, words
from sake_jax.models import ModelConfig, TransformerConfig, init
from sake_jax.training.publish import publish

PROMPTS = ["the dog", "one day, a girl"]
SAKE = [method for method in METHODS if "SAKE" in method]
SMALL = {"quick": True, "seeds": 2, "progress": False, "samples": 3, "length": 8}


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """A folder with a causal model that knows nothing."""
    sizes = {"V": 2048, "D": 16, "N": 1, "H": 2, "K": 2, "F": 16, "head_dim": 8, "context": 128}
    network = TransformerConfig(causal=True, **sizes)
    config = ModelConfig(family="llama", network=network, bos_id=0, eos_id=0)
    tokenizer = sj.load("tinystories").tokenizer.backend_tokenizer
    folder = tmp_path_factory.mktemp("judge") / "causal"
    return publish(config, init(network, jax.random.key(0)), tokenizer, folder)


@pytest.fixture(scope="module", autouse=True)
def without_encoder():
    """Brainstorming has one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "minilm", lambda: None)
        yield


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    path.write_text("\n\n".join([*PROMPTS, "no more than two when quick"]))
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory, judge, prompts):
    return story(tmp_path_factory.mktemp("story"), judge=judge, prompts=prompts, **SMALL)


def test_every_method_has_as_many_settings(study):
    assert {len(method.settings) for method in METHODS.values()} == {6}
    assert {len(study.rows(method=method)) for method in METHODS} == {2 * 2}
    assert json.loads((study.folder / "settings.json").read_text())["prompts"] == PROMPTS


def test_measures_are_in_their_ranges(study):
    for row in study.rows():
        assert 0 < row["across"] <= 1
        assert 0 < row["inside"] <= 1
        assert row["perplexity"] > 1
        assert 0 < row["entropy"] <= np.log(row["words"]) + 1e-6
        assert ("correlation" in row) == (row["method"] in SAKE)
        assert "meaning" not in row
    found = [row["correlation"] for row in study.rows(method="SAKE repulsion")]
    assert max(found) < 0


def test_a_cell_by_hand(study, judge):
    cell = {"method": "D-CFG", "strength": 0.5, "temperature": 0.7, "seed": 1}
    (row,) = study.rows(**cell)
    lm = sj.load("tinystories")
    # What does not matter is as in the experiment: the program is there already.
    same = {"draw": sj.temperature(sj.piecewise({0.0: 0.7, 0.1: 0.7})), "record": "signal"}
    sampler = sj.masked(lm, length=8, guidance=sj.classifier_free(0.5), ends="never", **same)
    out = sj.generate(lm, sampler, PROMPTS, samples=3, key=jax.random.key(1), batch=6)
    cut = [[words(text) for text in group] for group in out.texts]
    each = [text for group in cut for text in group]
    assert row["inside"] == pytest.approx(np.mean([distinct([text]) for text in each]))
    assert row["across"] == pytest.approx(np.mean([distinct(group) for group in cut]))
    assert row["entropy"] == pytest.approx(sample_entropy(each))
    assert row["example"] == out.texts[0][0]
    given = [prompt for prompt in PROMPTS for _ in range(3)]
    found = perplexity(load_judge(judge), [text for group in out.texts for text in group], given)
    assert row["perplexity"] == pytest.approx(found.value, rel=1e-4)


def test_the_report(study):
    report = (study.folder / "table.md").read_text()
    for method in METHODS:
        assert f"| {method} | {METHODS[method].settings[0].name} |" in report
    assert "8 tokens" in report
    assert "**This is a quick run" in report
    assert "In short" not in report, "it claims nothing"
    assert "semantic" not in report
    assert [path.name for path in study.folder.glob("*.png")] == ["frontier.png"]


def test_goes_on_and_refuses_other_settings(study, judge, prompts, monkeypatch):
    last, report = list(study.results.values())[-1], (study.folder / "table.md").read_text()
    study.journal.path.write_text(
        "\n".join(study.journal.path.read_text().splitlines()[:-1]) + "\n"
    )
    drawn = []
    real = texts.generate
    monkeypatch.setattr(texts, "generate", lambda *a, **k: drawn.append(a) or real(*a, **k))
    again = story(study.folder, judge=judge, prompts=prompts, **SMALL)
    assert len(drawn) == 1
    now = list(again.results.values())[-1]
    assert now | {"seconds": 0} == last | {"seconds": 0}
    assert (study.folder / "table.md").read_text() == report
    with pytest.raises(ValueError, match="must be new or hold a run with the same"):
        story(study.folder, judge=judge, prompts=prompts, **SMALL | {"length": 16})


def test_the_command_line_has_its_options(study, judge, prompts):
    """With others the finished folder would be refused."""
    given = {"judge": judge, "prompts": prompts, "samples": 3, "length": 8, "seeds": 2}
    options = [str(part) for name, value in given.items() for part in (f"--{name}", value)]
    command = ["experiment", "story", "--quick", *options, "--out", str(study.folder)]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0, done.output
    assert "frontier.png" in done.output


def test_wrong_options(tmp_path, judge, prompts):
    with pytest.raises(ValueError, match="samples must be at least 2"):
        story(tmp_path, judge=judge, prompts=prompts, **SMALL | {"samples": 1})
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ValueError, match="must hold a line of text"):
        story(tmp_path / "out", judge=judge, prompts=tmp_path / "empty.txt", **SMALL)


def test_the_usual_judges_and_prompts(monkeypatch):
    monkeypatch.setattr(texts, "load_judge", lambda name: sj.load("tinystories"))
    assert texts.prepare("tinystories", "auto").names["judge"] == "tinystories-causal"
    elsewhere = texts.prepare(GOLDENS / "llada", "auto")
    assert elsewhere.names["judge"] == "smollm2"
    assert elsewhere.encoder is None
    assert elsewhere.title == "Written by llada, judged by smollm2."
    sizes = {len(sj.load("tinystories").tokenizer(text)["input_ids"]) for text in BEGINNINGS}
    assert 8 < min(sizes) <= max(sizes) <= 16, "one room for all, so one program"


def test_samplers_of_families():
    for family, kind in {"mdlm": "Descent", "bd3lm": "Blocks", "llada": "Blocks"}.items():
        lm = sj.load(GOLDENS / family)
        made = texts.text_sampler(lm, 8, sj.identity(), sj.temperature(0.5))
        assert type(made.plan).__name__ == kind
        assert made.plan.length == 8
    free = texts.text_sampler(lm, 64, sj.identity(), sj.temperature(0.5), ends=True)
    never = texts.text_sampler(lm, 64, sj.identity(), sj.temperature(0.5), steps=50)
    assert (free.plan.blocks, never.plan.blocks) == (2, 1)
    assert never.plan.steps == 50
    assert len(never.guidance.parts) == len(free.guidance.parts) + 1


def test_diversities_of_handmade_samples():
    first = Sample("", "", ["a b a b", "a b"])  # ab ba ab, ab
    second = Sample("", "", ["c d e"])  # cd de
    found = texts.diversities([[first, second], [second, second]], None)
    assert found["inside"] == pytest.approx(np.mean([2 / 4, 1, 1, 1]))
    assert found["across"] == pytest.approx(np.mean([4 / 6, 2 / 4]))
    assert found["words"] == pytest.approx((6 + 3 + 3 + 3) / 4)
    assert found["entropy"] == pytest.approx(np.mean([np.log(2), *[np.log(3)] * 3]))
    assert "meaning" not in found


def curve(*points, seeds=5, noise=0.0):
    """(settings, seeds, 2) of -log perplexity and diversity."""
    shaken = noise * np.random.default_rng(0).normal(size=(len(points), seeds))
    found = np.repeat(np.asarray(points, float)[:, None], seeds, axis=1)
    found[..., 1] += shaken
    return found


def test_settings_are_chosen_on_other_seeds():
    lucky = np.asarray([[0.9, 0, 0], [0.1, 0.1, 0.1], [np.nan, 1, 1]])
    at, gained = texts_report.held_out(lucky)
    assert at == 0  # chosen by both seeds that see the first one
    np.testing.assert_allclose(gained, [0.1, 0, 0])
    assert texts_report.held_out(lucky[:, :1]) is None
    assert texts_report.held_out(lucky[2:]) is None


def test_the_verdict_says_who_is_above_and_who_leads_where():
    found = {
        texts.BASELINE: curve((-3, 0.9), (-1, 0.5)),
        texts.CONTROL: curve((-3, 0.9), (-1.5, 0.9)),
        "better": curve((-2, 0.8), noise=0.01),
        "worse": curve((-2, 0.6), noise=0.01),
        "same": curve((-2, 0.7), noise=0.1),
        "elsewhere": curve((-9, 0.95)),
    }
    names = {method: ["T = 0.1", "T = 1"] for method in found}
    told = texts_report.verdict("diversity", found, names)
    plain, control = told.split("Against “")[1:]
    assert plain.startswith("temperature”: above: hot start (by +0.")
    assert "better (by +0." in plain
    assert "below: worse (by -0." in plain
    assert "no difference shown: same" in plain
    assert "not comparable: elsewhere" in plain
    assert control.startswith("hot start”: below: better (by -0.")
    assert told.endswith("temperature at 2.7, hot start at 4.5, elsewhere at 8103.1.")
    few = {name: each[:, :3] for name, each in found.items()}
    assert "too few seeds to tell: better" in texts_report.verdict("diversity", few, names)


def test_a_measure_that_is_no_number_is_left_out():
    assert texts_report.format_measure([1.0, 1.0], "gain") == "+1.000 (+1.000 to +1.000)"
    assert texts_report.format_measure([12.346], "perplexity") == "12.35 (12.35 to 12.35)"
    assert texts_report.format_measure([]) == texts_report.format_measure([1.0, np.nan]) == ""
