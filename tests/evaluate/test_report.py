"""Tables of runs, the paper's rows, and the search for settings."""

import dataclasses
import json

import pytest
from scripted import scripted

from sake_jax.evaluate import Problem, Task, Verdict
from sake_jax.evaluate.presets import KS, LLADA, preset, presets
from sake_jax.evaluate.report import report
from sake_jax.evaluate.results import read_results
from sake_jax.evaluate.run import run
from sake_jax.evaluate.search import default_grid, grid, search, split
from sake_jax.evaluate.titles import printed, titles
from sake_jax.samplers import Request


def code_task(count=8, name="humaneval"):
    """Right is "yes"; verdicts look like those of programs."""

    def judge(answers):
        why = {True: "passed", False: "failed: AssertionError: a | b"}
        rights = [text == "yes" for _, text in answers]
        return [Verdict({"tests": r}, {"tests": "code"}, why[r]) for r in rights]

    problems = tuple(Problem(f"p{at}", "ask", {}) for at in range(count))
    return Task(name, problems, (), ("tests",), judge)


@pytest.fixture(scope="module")
def lm():
    return scripted({"yes": 0.5, "no": 0.5})


@pytest.fixture(scope="module")
def runs(lm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = []
    named = ({"preset": "sake-0.2"}, {"name": "mine"}, {})
    for seed, about in enumerate(each | {"model": LLADA} for each in named):
        options = {"samples": 32, "seed": seed, "about": about, "batch": 256}
        sampler = Request(length=1).build(lm)
        made.append(run(lm, sampler, code_task(), folder / str(seed), **options))
    return made


def test_runs_stand_side_by_side_with_the_paper(runs, tmp_path):
    text = report(runs, tmp_path / "out", ks=KS)
    assert titles(runs) == ["sake-0.2", "mine", "2"]
    assert "| as the paper prints | 0.320 | 0.380 | 0.470 | 0.520 | 0.560 |" in text
    assert text.count("as the paper prints") == 1
    wrong = sum(not right for lines in runs[1].correct("tests") for right in lines)
    assert f"failed: AssertionError {wrong}" in text
    assert (tmp_path / "out" / "report.md").read_text() == text
    assert (tmp_path / "out" / "passes.png").stat().st_size > 10_000


def test_parts_of_a_run_are_told(runs, lm, tmp_path):
    folder = tmp_path / "part"
    run(lm, Request(length=1).build(lm), code_task(), folder, samples=2)
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:6]))
    assert "part has 3 of 8 problems." in report([read_results(folder)], tmp_path / "out")
    (folder / "results.jsonl").write_text("")
    with pytest.raises(ValueError, match="must hold a finished problem"):
        report([read_results(folder)], tmp_path / "out")
    with pytest.raises(ValueError, match="k must be at most the samples of every run"):
        report(runs, tmp_path / "out", ks=(64,))
    with pytest.raises(ValueError, match="a report needs runs"):
        report([], tmp_path / "out")
    other = run(lm, Request(length=1).build(lm), code_task(name="mbpp"), tmp_path / "other")
    with pytest.raises(ValueError, match="must be of one task"):
        report([*runs, other], tmp_path / "out")


def test_presets_are_the_papers_rows(runs):
    rows = presets()
    ours = rows.pop("spread")
    assert (ours.request.guidance, ours.request.length) == ("spread", Request().length)
    assert len(rows) == 16
    for row in rows.values():
        assert (row.request.length, row.request.steps, row.request.block) == (256, 256, 256)
        assert row.model == "GSAI-ML/LLaDA-8B-Base"
    assert preset("d-cfg-0.5").request.guidance == "cfg"
    assert preset("base-0.7").request == dataclasses.replace(
        preset("base-0.2").request, temperature=0.7
    )
    assert preset("top-p-0.6").printed("humaneval") == {"pass@32": 0.366}
    assert preset("top-p-0.6").printed("mbpp") == {}
    assert preset("sake-0.2").printed("gsm8k")["vote@5 strict-match"] == 0.751
    assert preset("sake-0.2").printed("mbpp")["pass@32"] == 0.56
    assert printed(runs[1]) == {}
    with pytest.raises(ValueError, match=r"preset must be one of 'base-0\.2'"):
        preset("sake-0.3")


def test_settings_are_chosen_on_other_problems_than_they_are_compared_on(tmp_path):
    lm = scripted({"yes": 0.2, "no": 0.8})
    requests = {
        "temperature": grid(Request(length=1), temperature=(0.01, 50.0)),
        "top-p": grid(Request(length=1), top_p=(0.5, 0.79)),
    }
    found = search(lm, code_task(60), requests, tmp_path, k=2, share=0.4, samples=4, seed=1)
    assert found.best["temperature"].temperature == 50.0  # half of the answers are right
    assert found.tuned["temperature"][0] == 0
    assert found.best["top-p"].top_p == 0.5  # of equal ones the first
    names = [set(each.lines) for each in found.held_out.values()]
    assert names[0] == names[1]
    assert len(names[0]) == 36
    assert names[0].isdisjoint(read_results(tmp_path / "top-p" / "tuning-0").lines)
    told = (tmp_path / "search.md").read_text()
    assert told.count("**") == 4
    assert "temperature 50.0" in told
    before = (tmp_path / "report.md").read_text()
    again = search(lm, code_task(60), requests, tmp_path, k=2, share=0.4, samples=4, seed=1)
    assert again.tuned == found.tuned
    assert (tmp_path / "report.md").read_text() == before
    about = json.loads((tmp_path / "top-p" / "held-out" / "settings.json").read_text())["about"]
    assert about["request"]["top_p"] == 0.5


def test_methods_are_given_the_same_number_of_trials(lm, tmp_path):
    base = Request(length=8, guidance="sake", bandwidth=2.0, top_p=0.8)
    usual = default_grid(base, width=64)
    assert {len(each) for each in usual.values()} == {12}
    assert all(len(set(each)) == 12 for each in usual.values())
    assert {each.temperature for each in usual["sake"]} == {0.2, 0.7}
    assert {each.bandwidth for each in usual["sake"]} == {None, 8.0}
    assert {each.attention_bandwidth for each in usual["sake"]} == {None, 80.0}
    assert {each.top_p for name in ("d-cfg", "sake") for each in usual[name]} == {0.8}
    assert all(each.length == 8 for some in usual.values() for each in some)
    with pytest.raises(ValueError, match="equally many"):
        search(lm, code_task(), {"a": [Request()], "b": []}, tmp_path, k=1)
    with pytest.raises(ValueError, match="a choice must be one of 'guidance'"):
        grid(Request(), heat=(1,))
    with pytest.raises(ValueError, match="both parts must have problems"):
        split(code_task(), 0.01)
    with pytest.raises(ValueError, match="a search needs right answers"):
        search(lm, dataclasses.replace(code_task(), rules=()), {"a": [Request()]}, tmp_path, k=1)
    with pytest.raises(ValueError, match="rule must be one of 'tests'"):
        search(lm, code_task(), {"a": [Request()]}, tmp_path, k=1, rule="other")
