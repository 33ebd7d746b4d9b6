"""What the commands eval, report and search say to words that are wrong, and their own examples."""

import json
import shlex

import pytest
import typer.main
from typer.testing import CliRunner

from sake_jax.cli import app, evaluate
from sake_jax.cli.options import RunOptions
from sake_jax.evaluate import sandbox
from sake_jax.evaluate.report import report
from sake_jax.evaluate.results import Results, read_results

EXAMPLES = [
    line
    for text in (evaluate.EVAL, evaluate.REPORT, evaluate.SEARCH)
    for line in text.splitlines()
    if line.startswith("sake-jax")
]
QUESTION = {"question": "1 + 1?", "answer": "#### 2"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Commands write where they are, and keep programs in the user's cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))


@pytest.fixture
def unloaded(monkeypatch):
    """Nothing wrong should be noticed only after a model was loaded."""

    def load(*_):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(RunOptions, "load", load)


def call(*words, code=0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


def lines_of(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def finished(folder, **changes):
    """A run of one problem with 32 wrong answers, on the disk."""
    folder.mkdir(parents=True)
    task = {"name": "humaneval", "problems": 1, "rules": ["tests"], "checksum": 1}
    settings = {"task": task, "samples": 32, "seed": 0, "chat": False}
    settings |= {"about": {"name": folder.name}} | changes
    line = {"problem": "p", "place": 0, "text": "return 1", "ended": "length", "cut": 0}
    line |= {"evaluations": 4, "correct": {"tests": False}, "answer": {"tests": ""}, "why": "no"}
    (folder / "settings.json").write_text(json.dumps(settings))
    lines_of(folder / "results.jsonl", *(line | {"sample": at} for at in range(32)))
    return folder


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_are_words_that_the_commands_know(line):
    name, *words = shlex.split(line)[1:]
    command = typer.main.get_command(app)
    context = command.make_context("sake-jax", [name, *words])
    command.get_command(context, name).make_context(name, words, parent=context)
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
    assert line in " ".join(shown.split()), "older versions of typer break lines here"


def test_the_example_of_report(tmp_path):
    for name in ("base-0.2", "d-cfg-0.2", "sake-0.2"):
        finished(tmp_path / "runs" / name)
    (line,) = [line for line in EXAMPLES if line.startswith("sake-jax report")]
    assert "passes.png, report.md" in call(*shlex.split(line)[1:])
    assert "pass@32" in (tmp_path / "runs" / "figure" / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["gsm8k", "story"])
def test_the_examples_of_eval_that_need_no_large_model(task, tmp_path):
    lines_of(tmp_path / "test.jsonl", QUESTION)
    lines_of(tmp_path / "train.jsonl", *[QUESTION] * 5)
    (tmp_path / "prompts.txt").write_text("once upon a time\n")
    (line,) = [line for line in EXAMPLES if line.startswith(f"sake-jax eval {task}")]
    told = call(*shlex.split(line)[1:])
    assert ("vote@5" if task == "gsm8k" else "perplexity") in told
    assert read_results(tmp_path / "runs" / task).complete


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("eval", "gsm8k", "--strength", "2"), "--strength is for guidances, got 2.0; name one"),
        (("eval", "gsm8k", "--preset", "base-0.2", "--strength", "2"), "--strength is for"),
        (("eval", "gsm8k", "--k", "1,2", "--samples", "1"), "k must be at most --samples, got 2"),
        (("eval", "gsm8k", "--k", "0"), "--k must be whole numbers with commas, got '0'"),
        (("eval", "gsm8k", "--k", ""), "--k must be whole numbers with commas, got ''"),
        (("eval", "gsm8k", "--k", "²"), "--k must be whole numbers with commas"),
        (("eval", "gsm8k", "--shard", "-1/2"), "--shard must be INDEX/NUMBER"),
        (("eval", "gsm8k", "--shard", "0/0"), "the number of shards must be at least 1"),
        (("eval", "gsm8k", "--seconds", "0"), "--seconds must be above 0"),
        (("eval", "gsm8k", "--seconds", "nan"), "--seconds must be finite"),
        (("eval", "gsm8k", "--data", "none.jsonl"), "must be a file that exists, got 'none.jsonl'"),
        (("eval", "gsm8k", "--data", "empty.jsonl"), "data must hold records, got 'none in empty"),
        (("eval", "gsm8k", "--data", "some.jsonl"), "examples must be the training set, got None"),
        (("eval", "gsm8k", "--data", "some.jsonl"), "or show none with --shots 0"),
        (("eval", "gsm8k", "--data", "some.jsonl", "--examples", "some.jsonl"), "lower the 5 of"),
        (("eval", "mbpp", "--shots", "4"), "shots must be at most 3"),
        (("eval", "story", "--shots", "1"), "--shots are for mbpp and gsm8k"),
        (("eval", "humaneval", "--data", "some.jsonl"), "some.jsonl, line 1 must have 'task_id'"),
        (("search", "sudoku"), "TASK must be one of 'humaneval'"),
        (("report", "."), ". must hold a run of sake-jax eval, got 'no settings.json'"),
    ],
)
def test_wrong_words(words, message, unloaded, tmp_path):
    lines_of(tmp_path / "some.jsonl", QUESTION)
    (tmp_path / "empty.jsonl").write_text("")
    assert message in call(*words, code=1)


@pytest.mark.parametrize("task", ["humaneval", "mbpp"])
def test_where_programs_cannot_be_contained_nothing_is_begun(task, unloaded, monkeypatch):
    def refuse(programs, unsafe, **_):
        if not unsafe:
            raise ValueError("programs must run in namespaces of their own")

    monkeypatch.setattr(sandbox, "run_programs", refuse)
    assert "namespaces of their own" in call("eval", task, "--data", "x.jsonl", code=1)
    told = call("eval", task, "--data", "x.jsonl", "--unsafe", code=1)
    assert "must be a file that exists" in told


def test_reports_of_what_is_not_whole(tmp_path):
    run = finished(tmp_path / "run")
    told = "k must be at most the samples of every run, got 64; lower it to 32"
    assert told in call("report", run, "--k", "1,64", code=1)
    mixed = finished(tmp_path / "mixed", task={"name": "mbpp", "problems": 1, "rules": ["tests"]})
    assert "must be of one task" in call("report", run, mixed, code=1)
    lines = (run / "results.jsonl").read_bytes()
    (run / "results.jsonl").write_bytes(lines[:-2])
    assert "must hold a finished problem, got 'none'; let it run on" in call("report", run, code=1)
    (run / "results.jsonl").write_bytes(lines.replace(b'"place": 0, ', b"", 1))
    assert "must be a row of ours, got nothing named 'place'" in call("report", run, code=1)
    (run / "results.jsonl").unlink()
    assert "must hold a finished problem" in call("report", run, code=1)


def test_one_sample_of_each_problem(tmp_path):
    line = read_results(finished(tmp_path / "run")).lines["p"][0]
    settings = read_results(tmp_path / "run").settings | {"samples": 1}
    text = report([Results(tmp_path / "run", settings, {"p": [line]})], tmp_path)
    assert "| run | 1.000 (1.000 to 1.000) | 0.693 (0.693 to 0.693) | |" in text, "no self-BLEU"
