"""sake-jax bench."""

import json
import re

import pytest
from typer.testing import CliRunner

from sake_jax import cli
from sake_jax.planning.forms import FORMS


def bench(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["bench", *arguments])
    return result.exit_code, re.sub(r"\x1b\[[\d;]*m", "", result.output)


def test_help_shows_examples():
    code, output = bench("--help")
    assert code == 0
    assert "sake-jax bench --out speed.json" in " ".join(output.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--plan v9:2x2", "topology must be a chip of v5e"),
        ("--plan v5e", "such as v5e:2x4"),
        ("--plan h100:1 --quick", "a plan measures nothing"),
        ("--plan h100:1 --rounds 3", "leave out --plan, or --rounds"),
        ("--plan h100:1 --no-growth --dtype int8", "leave out --plan, or --dtype and --growth"),
        ("--compile", "--compile is for plans"),
        ("--model nowhere", "the model must be one of countdown-3"),
        ("--prompts 8,few", "prompts must be whole numbers"),
        ("--prompts 0", "such as 1,8,32"),
        ("--quick --prompts 8,5000", "context of 4096"),
        ("--dtype bfloat16", "the scaled model is float32"),
        ("--quick --growth", "leave out --growth or --quick"),
        ("--quick --steps 9", "steps must be at most length (8)"),
    ],
)
def test_what_cannot_be_measured(arguments, said):
    code, output = bench(*arguments.split())
    assert code == 1
    assert said in " ".join(output.split())
    assert "Traceback" not in output


def test_another_file_is_not_written_over(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"precious": 1}')
    code, output = bench("--quick", "--out", str(path))
    assert code == 1
    assert "name a file that sake-jax bench wrote" in " ".join(output.split())
    assert path.read_text() == '{"precious": 1}'


@pytest.mark.slow
def test_quick(tmp_path):
    path = tmp_path / "speed.json"
    code, output = bench("--quick", "--out", str(path))
    assert code == 0, output
    assert "tokens a second" in output
    assert "in the paper" in output
    tables = json.loads(path.read_text())["measured"]["tables"]
    assert [cell["at"] for cell in tables["prompt"]] == [8, 16]
    assert set(tables["prompt"][0]["forms"]) == set(FORMS)
    assert set(tables) == {"prompt"}


@pytest.mark.slow
def test_a_model_with_settings_of_its_own():
    words = "--model tests/goldens/llada --dtype bfloat16 --prompts 16,4 --length 6 --steps 2"
    code, output = bench(*words.split(), *["--batch", "3", "--rounds", "1", "--growth", "--json"])
    assert code == 0, output
    found = json.loads(output[output.index("{") :])["measured"]
    assert found["model"]["dtype"] == "bfloat16"
    assert found["setting"] == {"length": 6, "steps": 2, "rounds": 1, "batch": 3}
    assert [cell["at"] for cell in found["tables"]["prompt"]] == [4, 16]
    assert [cell["at"] for cell in found["tables"]["batch"]] == [3, 12, 48]
    assert found["tables"]["devices"] == []
    assert "vocabulary" not in found["tables"]


@pytest.mark.slow
def test_a_plan_is_kept_beside_what_was_measured(tmp_path):
    pytest.importorskip("libtpu")
    path = tmp_path / "speed.json"
    path.write_text('{"measured": {"kept": true}}')
    words = "--model tinystories --plan v5e:2x4,data=8 --prompts 16 --length 8 --steps 4 --batch 8"
    code, output = bench(*words.split(), "--compile", "--out", str(path))
    assert code == 0, output
    found = json.loads(path.read_text())
    assert found["measured"] == {"kept": True}
    (chips,) = found["planned"]["chips"]
    assert chips["mesh"] == {"data": 8}
    assert chips["prompt"][0]["forms"]["none"]["compiler"]["ms"] > 0
    assert found["planned"]["setting"] == {"length": 8, "steps": 4, "batch": 8}
