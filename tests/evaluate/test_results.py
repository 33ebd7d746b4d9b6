"""Files of runs that were cut short, mixed up, or divided anew."""

import json

import pytest
from scripted import scripted

import sake_jax as sj
import sake_jax.evaluate.run as running
from sake_jax.evaluate import Problem, Task, Verdict
from sake_jax.evaluate.results import read_results
from sake_jax.evaluate.run import Shard, run
from sake_jax.samplers import Request


@pytest.fixture(scope="module")
def lm():
    return scripted({"yes": 0.5, "no": 0.5})


def task(count=6):
    def judge(answers):
        return [Verdict({"same": text == "yes"}, {"same": text}, "") for _, text in answers]

    return Task(
        "small", tuple(Problem(f"p{n}", "ask", {}) for n in range(count)), (), ("same",), judge
    )


@pytest.fixture
def draw(lm, tmp_path, monkeypatch):
    """`draw(shard)`: runs in a folder, and says which problems it drew."""
    drawn, real = [], sj.generate

    def generate(*args, **options):
        drawn.append(options)
        return real(*args, **options)

    monkeypatch.setattr(running.sj, "generate", generate)

    def draw(shard=running.ALL, folder="run", **options):
        drawn.clear()
        sampler = Request(length=1).build(lm)
        run(lm, sampler, task(), tmp_path / folder, samples=2, shard=shard, **options)
        return [name for options in drawn for name in options["names"]]

    draw.calls = drawn
    return draw


def test_a_run_goes_on_in_other_shards(draw, tmp_path):
    assert draw(folder="whole") == [0, 1, 2, 3, 4, 5]
    assert draw(Shard(0, 3)) == [0, 3]
    assert draw(Shard(1, 2)) == [1, 5], "what another shard has done is not done again"
    assert not read_results(tmp_path / "run").complete
    assert draw() == [2, 4]
    assert draw(Shard(2, 4)) == []
    assert read_results(tmp_path / "run").lines == read_results(tmp_path / "whole").lines
    counts = [
        len(path.read_text().splitlines()) for path in sorted((tmp_path / "run").glob("*.jsonl"))
    ]
    assert counts == [4, 4, 0, 4], "each sample once, and nothing by the last"


def test_a_batch_may_be_smaller_than_the_samples(draw, tmp_path):
    assert draw(batch=1) == [0, 1, 2, 3, 4, 5]
    assert {options["batch"] for options in draw.calls} == {1}
    draw(folder="whole")
    assert read_results(tmp_path / "run").lines == read_results(tmp_path / "whole").lines


@pytest.mark.parametrize(("keep", "again"), [(0, 6), (1, 6), (-1, 1)])
def test_results_that_were_cut_anywhere(keep, again, draw, tmp_path):
    draw()
    path = tmp_path / "run" / "results.jsonl"
    whole = read_results(tmp_path / "run").lines
    path.write_bytes(path.read_bytes()[:keep])
    assert not read_results(tmp_path / "run").complete
    assert len(draw()) == again
    assert read_results(tmp_path / "run").lines == whole
    assert len(path.read_text().splitlines()) == 12


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 1 of .*results-0-of-2\.jsonl must be a row of ours, got Expecting"),
        ("{}", r"line 1 of .* must be a row of ours, got nothing named 'problem'; take it out"),
        ('{"problem": "p0", "sample": 0}', "got nothing named 'place'"),
    ],
)
def test_lines_that_are_not_ours(line, message, draw, tmp_path):
    draw()
    (tmp_path / "run" / "results-0-of-2.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=message):
        read_results(tmp_path / "run")
    with pytest.raises(ValueError, match=message):
        draw()


@pytest.mark.parametrize("changes", [{"problem": "q"}, {"place": 6}, {"problem": "q", "place": 9}])
def test_files_of_another_run(changes, draw, tmp_path):
    draw()
    path = tmp_path / "run" / "results.jsonl"
    stranger = json.loads(path.read_text().splitlines()[0]) | changes
    (tmp_path / "run" / "results-old.jsonl").write_text(json.dumps(stranger) + "\n")
    with pytest.raises(ValueError, match=r"must be of one run with 6 problems, got .*; take out"):
        read_results(tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", r"settings\.json must be JSON, got Expecting value"),
        ("[]", "must hold a run of sake-jax eval, got 'settings of something else'"),
        ('{"seed": 0}', "must hold a run of sake-jax eval"),
    ],
)
def test_folders_of_something_else(settings, message, tmp_path):
    (tmp_path / "settings.json").write_text(settings)
    with pytest.raises(ValueError, match=message):
        read_results(tmp_path)
