"""Whole runs of lm_eval's command on a converted checkpoint and on the built-in model, killed in
tasks of every kind and begun again."""

import json
import pickle
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from bytewise import byte_llada
from sake_jax.conversion import convert

COUNT = 150
"""Documents: likelihoods are kept after 64 at a time, and a kill should be between two keeps."""
KINDS = {"killed-writing": list, "killed-choosing": tuple, "killed-reading": float}
"""What the cache keeps for each task: texts, nats with is_greedy, nats."""


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """The tiny LLaDA checkpoint with a token for each byte, converted."""
    folder = tmp_path_factory.mktemp("models")
    convert(byte_llada(folder).folder, folder / "ours")
    return folder / "ours"


@pytest.fixture(scope="module")
def many(tasks):
    """The tasks, on documents enough to be interrupted among them."""
    lines = [{"question": f"the dog saw {at:03}", "answer": "good"} for at in range(COUNT)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tasks / "many.jsonl").write_text(text)
    for name in KINDS:
        task = (tasks / f"{name.removeprefix('killed-')}.yaml").read_text()
        task = task.replace("documents.jsonl", "many.jsonl").replace("task: ", "task: killed-")
        task = task.replace("- down\n- them\n", "")  # two choices take half the time
        (tasks / f"{name}.yaml").write_text(task)
    return tasks


def command(model, tasks, out):
    options = f"model={model},guidance=sake,steps=2,mc_samples=2,mc_batch=128,seed=3"
    words = ["--model", "sake_jax", "--model_args", options, "--tasks", ",".join(KINDS)]
    words += ["--include_path", tasks, "--batch_size", "8", "--use_cache", out / "cache"]
    words += ["--output_path", out, "--log_samples"]
    return [sys.executable, "-W", "ignore", "-m", "sake_jax.evaluate.harness", *map(str, words)]


def finish(model, tasks, out):
    """Scores, and the answers of each task, of a run that comes to its end."""
    done = subprocess.run(command(model, tasks, out), capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    (path,) = out.rglob("results_*.json")
    answers = {}
    for name in KINDS:
        (samples,) = out.rglob(f"samples_{name}_*.jsonl")
        lines = [json.loads(line) for line in samples.read_text().splitlines()]
        answers[name] = {line["doc_id"]: (line["resps"], line["filtered_resps"]) for line in lines}
    return json.loads(path.read_text())["results"], answers


def kept(out, kind):
    """Of each answer of a kind that is on the disk, the row: one that is written anew moves."""
    path = out / "cache_rank0.db"
    if not path.exists():
        return {}
    entries = sqlite3.connect(path)
    try:
        found = entries.execute("SELECT key, rowid, value FROM unnamed").fetchall()
    except sqlite3.OperationalError:  # the first moments
        return {}
    finally:
        entries.close()
    return {key: row for key, row, value in found if isinstance(pickle.loads(value), kind)}


def kill_among(kind, model, tasks, out):
    """Kills the command as soon as more answers of a kind are kept."""
    before = len(kept(out, kind))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command(model, tasks, out), **quiet) as process:
        deadline = time.monotonic() + 3600
        while process.poll() is None and time.monotonic() < deadline:
            if len(kept(out, kind)) > before:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    return process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("model", ["tinystories", "converted"])
def test_killed_and_begun_again(model, converted, many, tmp_path):
    model = converted if model == "converted" else model
    whole = finish(model, many, tmp_path / "whole")
    again, seen = tmp_path / "again", {}
    for kind in KINDS.values():
        assert kill_among(kind, model, many, again) == -signal.SIGKILL
        part = kept(again, kind)
        assert 0 < len(part) < len(kept(tmp_path / "whole", kind)), "killed in the middle of it"
        seen |= part
    assert finish(model, many, again) == whole
    rows = {key: row for kind in KINDS.values() for key, row in kept(again, kind).items()}
    assert seen.items() <= rows.items(), "what was done is not done again"
