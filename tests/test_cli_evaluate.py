"""The commands eval, report and search."""

import json

import pytest
from typer.testing import CliRunner

from sake_jax.cli import app
from sake_jax.evaluate import search as searching
from sake_jax.evaluate.results import read_results
from sake_jax.samplers import Request

SMALL = ("--length", "8", "--steps", "2", "--temperature", "1")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch, tmp_path):
    """The user's own cache of programs stays as it is."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))


def call(*words, code=0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return " ".join(done.output.split())


@pytest.fixture
def problems(tmp_path):
    """Two problems in the form of HumanEval."""
    path = tmp_path / "problems.jsonl"
    tests = "def check(f):\n    assert f(2) == 4\n"
    records = [
        {
            "task_id": f"own/{name}",
            "prompt": f"def {name}(x):\n",
            "entry_point": name,
            "test": tests,
            "canonical_solution": "    return 2 * x\n",
        }
        for name in ("double", "twice")
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_eval_prints_all_settings_and_goes_on(problems, tmp_path):
    out = tmp_path / "run"
    words = ("eval", "humaneval", "--data", problems, *SMALL, "--samples", 2, "--k", "1,2")
    words += ("--guidance", "sake", "--strength", 0.5, "--bandwidth", 3, "--attention-bandwidth", 9)
    words += ("--out", out, "--seconds", 5)
    told = call(*words)
    assert '"bandwidth": 3.0' in told
    assert '"attention_bandwidth": 9.0' in told
    assert '"steps": 2' in told
    assert "pass@2" in told
    lines = (out / "results.jsonl").read_text()
    assert len(lines.splitlines()) == 4
    assert call(*words) == told
    assert (out / "results.jsonl").read_text() == lines
    assert "must be new or hold a run with the same" in call(*words, "--seed", 1, code=1)


def test_shards_share_a_folder(problems, tmp_path):
    words = ("eval", "humaneval", "--data", problems, *SMALL, "--out", tmp_path / "run")
    assert "1 of 2 problems" in call(*words, "--shard", "1/2")
    assert "pass@1" in call(*words, "--shard", "0/2")
    whole = call(*words[:-1], tmp_path / "whole")
    assert read_results(tmp_path / "whole").lines == read_results(tmp_path / "run").lines
    told = call("report", tmp_path / "run", tmp_path / "whole", "--out", tmp_path / "report")
    assert "no guidance, T 1" in told
    assert "passes.png" in told
    assert "pass@1" in whole


def test_a_preset_is_changed_by_what_is_said(problems, tmp_path):
    words = ("eval", "humaneval", "--data", problems, "--preset", "sake-0.2", "--model")
    words += ("tinystories", "--length", 4, "--steps", 2, "--block", 4, "--out", tmp_path / "run")
    told = call(*words, "--limit", 1)
    assert '"temperature": 0.2' in told
    assert '"top_p": 0.95' in told
    assert '"strength": 0.7' in told
    assert '"length": 4' in told
    assert "model tinystories" in " ".join(told.split())
    assert "as the paper prints" not in " ".join(told.split())


def test_stories_are_measured(tmp_path):
    (tmp_path / "prompts.txt").write_text("once upon a time\nthe dog\n")
    words = ("eval", "story", "--data", tmp_path / "prompts.txt", *SMALL, "--samples", 2)
    told = call(*words, "--judge", "tinystories-causal", "--out", tmp_path / "run", "--batch", 2)
    assert "perplexity" in told
    assert "self-BLEU" in told


def test_a_puzzle_is_for_its_own_model(tmp_path):
    words = ("eval", "countdown-3", "--samples", 2, "--limit", 2, "--out", tmp_path / "run")
    told = call(*words)
    assert '"model": "countdown-3"' in told
    assert '"preset": "spread"' in told
    assert "pass@1" in told
    plain = (*words[:-1], tmp_path / "plain", "--guidance", "none")
    assert '"preset": null' in call(*plain)
    other = (*words[:-1], tmp_path / "other", "--preset", "spread", "--guidance", "none")
    assert '"budget": null' in call(*other), "which goes with the guidance that takes it"
    refused = call("eval", "products", code=1)
    assert "products needs a model of its own" in " ".join(refused.split())


def test_search_compares_what_it_chose(problems, tmp_path, monkeypatch):
    few = {
        "temperature": searching.grid(Request(length=4, steps=1), temperature=(0.5, 1.0)),
        "sake": searching.grid(Request("sake", length=4, steps=1), strength=(0.5, 1.0)),
    }
    asked = []
    monkeypatch.setattr(searching, "default_grid", lambda *base: asked.append(base) or few)
    words = ("search", "humaneval", "--data", problems, "--k", 2, "--out", tmp_path / "run")
    told = call(*words, "--share", 0.5, "--length", 4, "--top-p", 0.9)
    assert asked == [(Request(length=4, top_p=0.9), 256)]
    assert "strength 0.5" in told
    assert "Chosen on one part" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("eval", "riddles"), "TASK must be one of 'humaneval'"),
        (("eval", "story"), "story needs prompts"),
        (("eval", "humaneval", "--k", "1,x"), "--k must be whole numbers"),
        (("eval", "humaneval", "--k", "4"), "k must be at most --samples"),
        (("eval", "humaneval", "--shard", "2"), "--shard must be INDEX/NUMBER"),
        (("eval", "humaneval", "--shard", "2/2"), "a shard's index must be at most 1"),
        (("eval", "humaneval", "--preset", "best"), "preset must be one of"),
        (("eval", "humaneval", "--chat"), "--chat needs a model with a chat template"),
        (
            ("eval", "humaneval", "--examples", "x.jsonl"),
            "--examples and --shots are for mbpp and gsm8k",
        ),
        (("eval", "humaneval", "--bandwidth", "2"), "bandwidth is for the guidances"),
        (("eval", "humaneval", "--guidance", "paper"), "guidance needs a bandwidth"),
        (("report", "nowhere"), "must hold a run of sake-jax eval"),
    ],
)
def test_bad_words(words, message, problems, tmp_path):
    given = ("--data", problems, "--out", tmp_path / "run") if "humaneval" in words else ()
    assert message in call(*words, *given, code=1)
