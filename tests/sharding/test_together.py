"""Two processes write what one does, on meshes of all devices and of each process's own."""

import json
import re

import numpy as np
import pairs
import pytest
import scenarios


def same(pair: list[dict], alone: dict) -> None:
    for found in pair:
        for field in ("tokens", "ended", "trajectory", "checksum"):
            assert found[field] == alone[field], field
        np.testing.assert_allclose(found["entropy"], alone["entropy"], atol=1e-4)


def test_tokens_of_one_process(tmp_path):
    """Of a model over all eight devices; for those of each process's own see below."""
    both = pairs.scenario(tmp_path, "tokens", "quick")
    alone = scenarios.written("llada", "none", None)
    same([next(iter(found.values())) for found in both], alone)


@pytest.mark.slow
def test_tokens_of_every_family(tmp_path):
    both = pairs.scenario(tmp_path, "tokens", "every")
    for case in scenarios.cases(scenarios.EVERY):
        name, guidance, _ = case
        alone = scenarios.written(name, guidance, None)
        same([found[str(case)] for found in both], alone)


@pytest.mark.slow
def test_talk_and_meshes(tmp_path):
    """Both hear the same; a mesh is of all devices or of each process's own, or refused."""
    for found in pairs.scenario(tmp_path, "talk"):
        assert (found["gathered"], found["told"]) == (["x", "xx"], 0)
        assert found["error"] == "list index out of range"
        assert found["(2, 1, 1)"] == 2
        rule = r"all 8 devices, or divide the 4 of each process, got \(1, 1, \d+\); "
        for wrong in ("(1, 1, 3)", "(1, 1, 16)"):
            assert re.search(rule + "choose sizes with a product of 1, 2, 4 or 8", found[wrong])


@pytest.mark.slow
def test_likelihoods(tmp_path):
    for found in pairs.scenario(tmp_path, "likelihood"):
        np.testing.assert_allclose(found["value"], scenarios.likelihood()["value"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["auto", "data=4,tensor=2"])
def test_the_command_prints_what_one_process_prints(tmp_path, mesh):
    """Process 0 alone prints and writes; stop strings end rows; prompts come from its input."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("the dog\nthe cat\nonce upon a time\n")
    words = ("generate", "--file", str(prompts), "--length", "16", "--samples", "3", "--json")
    words += ("--stop", "was", "--guidance", "spread", "--batch", "6")
    mine = (*words, "--mesh", mesh, "--save", "saved")
    assert pairs.run(tmp_path, *pairs.command(*mine)) == [0, 0], pairs.said(tmp_path, 0)
    (found,) = json.loads((tmp_path / "out-0").read_text()).values()
    assert (tmp_path / "out-1").read_text() == ""
    from typer.testing import CliRunner

    from sake_jax import cli

    alone = CliRunner().invoke(cli.app, list(words))
    (expected,) = json.loads(alone.output).values()
    assert (found["texts"], found["ended"]) == (expected["texts"], expected["ended"])
    assert any("string" in group for group in found["ended"])
    rows = [json.loads(line) for line in (tmp_path / "saved" / "rows.jsonl").open()]
    assert sorted((r["prompt"], r["sample"]) for r in rows) == [
        (p, s) for p in range(3) for s in range(3)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [(), ("--mesh", "data=2,tensor=4")])
def test_an_evaluation(tmp_path, mesh):
    """The same results in the same order; programs are judged by process 0."""
    problem = {"entry_point": "f", "test": "def check(f): assert f() == 1", "prompt": "def f():\n"}
    lines = [json.dumps(problem | {"task_id": f"t/{at}"}) + "\n" for at in range(5)]
    (tmp_path / "problems.jsonl").write_text("".join(lines))
    words = ("eval", "humaneval", "--data", str(tmp_path / "problems.jsonl"), "--length", "8")
    words += ("--samples", "2", "--batch", "4", "--model", "tinystories")
    mine = (*words, "--out", "run", *mesh)
    assert pairs.run(tmp_path, *pairs.command(*mine)) == [0, 0], pairs.said(tmp_path, 0)
    from typer.testing import CliRunner

    from sake_jax import cli

    alone = CliRunner().invoke(cli.app, [*words, "--out", str(tmp_path / "alone")])
    assert alone.exit_code == 0, alone.output
    read = lambda run: sorted((tmp_path / run / "results.jsonl").read_text().splitlines())  # noqa: E731
    assert read("run") == read("alone")
    assert (tmp_path / "run" / "report.md").is_file()
