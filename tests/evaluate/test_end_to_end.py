"""Whole runs by the command line, killed and begun again, on a converted checkpoint and on the
built-in model."""

import json
import signal
import subprocess
import sys
import time

import pytest

from bytewise import byte_llada
from sake_jax.evaluate.results import read_results

MODELS = ("tinystories", "converted")
TASKS = ("humaneval", "mbpp", "gsm8k", "story", "brainstorm")
BEGIN = "import sys; from sake_jax.cli import main; sys.argv[0] = 'sake-jax'; main()"


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """The tiny LLaDA checkpoint with a token for each byte, converted."""
    folder = tmp_path_factory.mktemp("models")
    call("convert", byte_llada(folder).folder, folder / "ours")
    return folder / "ours"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Six small problems for each task."""
    folder, numbers = tmp_path_factory.mktemp("data"), range(6)
    lines = {
        "humaneval": [
            {
                "task_id": f"own/{n}",
                "prompt": f"def add{n}(x):\n",
                "entry_point": f"add{n}",
                "canonical_solution": f"    return x + {n}\n",
                "test": f"def check(f):\n    assert f(1) == {n + 1}\n",
            }
            for n in numbers
        ],
        "mbpp": [
            {
                "task_id": n,
                "text": f"Write a function that adds {n}.",
                "code": f"def add(x):\n    return x + {n}",
                "test_list": [f"assert add({x}) == {x + n}" for x in (1, 2, 3)],
            }
            for n in (2, 3, 4, *range(11, 17))
        ],
        "gsm8k": [{"question": f"1 + {n}?", "answer": f"#### {n + 1}"} for n in numbers],
        "story": [{"prompt": f"a dog met {n} cats"} for n in numbers],
        "brainstorm": [{"prompt": f"name {n} toys"} for n in numbers],
    }
    for name, records in lines.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def words(task, model, data, out):
    given = ["eval", task, "--data", data / f"{task}.jsonl", "--model", model, "--out", out]
    given += ["--examples", data / "gsm8k.jsonl"] if task == "gsm8k" else []
    given += ["--guidance", "sake", "--temperature", "1", "--length", "8", "--steps", "4"]
    return [*given, "--samples", "2", "--k", "1,2", "--batch", "2", "--seconds", "30"]


def command(*given):
    return [sys.executable, "-W", "ignore", "-c", BEGIN, *map(str, given)]


def call(*given):
    subprocess.run(command(*given), check=True, capture_output=True, timeout=600)


def kill_after(lines, path, *given):
    """Kills the command when its results have so many lines."""
    with subprocess.Popen(
        command(*given), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 600
        while process.poll() is None and time.monotonic() < deadline:
            if path.exists() and path.read_bytes().count(b"\n") >= lines:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
    return process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("task", TASKS)
def test_killed_and_begun_again(task, model, converted, data, tmp_path):
    model = converted if model == "converted" else model
    call(*words(task, model, data, tmp_path / "whole"))
    whole = read_results(tmp_path / "whole")
    assert len(whole.lines) == 6
    again = words(task, model, data, tmp_path / "again")
    killed = kill_after(4, tmp_path / "again" / "results.jsonl", *again)
    assert killed == -signal.SIGKILL
    assert not read_results(tmp_path / "again").complete
    call(*again)
    assert read_results(tmp_path / "again").lines == whole.lines
    for name in ("report.md", "results.jsonl"):
        texts = [(tmp_path / run / name).read_text() for run in ("whole", "again")]
        assert sorted(texts[0].splitlines()) == sorted(texts[1].splitlines())
