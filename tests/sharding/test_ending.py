"""What becomes of a run whose processes die, fail, or do not find each other."""

import json
import signal
import subprocess
import sys
import time

import pairs
import pytest

from sake_jax import sharding
from sake_jax.sharding import ending

PROMPTS = "".join(f"the {name}\n" for name in ("dog", "cat", "boy", "girl", "sun", "tree"))


def words(folder, *more) -> tuple[str, ...]:
    file = folder / "prompts.txt"
    file.write_text(PROMPTS)
    found = ("generate", "--file", str(file), "--length", "32", "--samples", "4", "--batch", "4")
    return (*found, "--save", str(folder / "saved"), *more)


def rows(folder) -> dict:
    path = folder / "saved" / "rows.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return {(row["prompt"], row["sample"]): row["tokens"] for row in found}


def wait_for_rows(folder, running) -> None:
    until = time.monotonic() + 300
    while not rows(folder):
        assert time.monotonic() < until, pairs.said(folder, 0)
        assert all(process.poll() is None for process in running), pairs.said(folder, 0)
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [(), ("--mesh", "data=2,tensor=4")], ids=["divided", "spread"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_other_and_rows_stay(tmp_path, victim, mesh):
    given = pairs.command(*words(tmp_path, *mesh))
    with pairs.started(tmp_path, *given) as running:
        wait_for_rows(tmp_path, running)
        running[victim].send_signal(signal.SIGKILL)
        took = pairs.ended(running, 1 - victim, within=60)
        assert running[1 - victim].returncode == 1
    print(f"ended after {took:.1f} s")
    last = pairs.said(tmp_path, 1 - victim)
    assert "a process of this run has ended or cannot be reached" in last
    assert "start all processes again to go on" in last
    kept = rows(tmp_path)
    assert 0 < len(kept) < 24, "it was killed half-way"
    assert pairs.run(tmp_path, *given) == [0, 0], pairs.said(tmp_path, 0)
    alone = tmp_path / "alone"
    alone.mkdir()
    from typer.testing import CliRunner

    from sake_jax import cli

    assert CliRunner().invoke(cli.app, list(words(alone))).exit_code == 0
    assert rows(tmp_path) == rows(alone)
    assert all(rows(alone)[pair] == tokens for pair, tokens in kept.items())


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_program_says_plainly_that_another_is_gone(tmp_path, victim):
    """Not by the engine's words alone, which name its network library."""
    given = (sys.executable, str(pairs.HERE / "scenarios.py"), "waits")
    with pairs.started(tmp_path, *given) as running:
        until = time.monotonic() + 300
        while not all((tmp_path / f"talked-{number}").exists() for number in range(pairs.COUNT)):
            assert time.monotonic() < until, pairs.said(tmp_path, 0)
            time.sleep(0.05)
        running[victim].send_signal(signal.SIGKILL)
        pairs.ended(running, 1 - victim, within=60)
    assert pairs.said(tmp_path, 1 - victim).splitlines()[-1] == f"error: {ending.LOST}"


@pytest.mark.slow
def test_an_error_in_one_process_is_told_to_the_other(tmp_path):
    given = (sys.executable, str(pairs.HERE / "scenarios.py"), "fails")
    with pairs.started(tmp_path, *given) as running:
        assert running[0].wait(100) == running[1].wait(10) == 1
    assert "RuntimeError: something is broken" in pairs.said(tmp_path, 1)
    assert "process 1 has ended: RuntimeError: something is broken" in pairs.said(tmp_path, 0)


@pytest.mark.slow
@pytest.mark.parametrize("number", ["0", "1"])
def test_processes_that_do_not_meet(tmp_path, number, monkeypatch):
    """Nobody is at the address, or nobody comes: one clear line after the engine's own."""
    code = f"from sake_jax import sharding; sharding.connect('127.0.0.1:{pairs.free_port()}', "
    code += f"2, {number}, wait=3)"
    alone = pairs.environment(None, 0)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=alone)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: all processes must meet at 127.0.0.1:")
    assert "within 3 s" in last
    assert "JAX_PROCESS_ID of its own from 0 on" in last


@pytest.mark.slow
def test_distributed_where_nothing_says_who_the_others_are():
    alone, given = pairs.environment(None, 0), pairs.command("generate", "the dog", "--distributed")
    done = subprocess.run(given, capture_output=True, text=True, env=alone)
    assert done.returncode == 1
    assert "set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID" in done.stderr


@pytest.mark.slow
def test_processes_that_count_differently(tmp_path, monkeypatch):
    counts = iter(["2", "3"])
    usual = pairs.environment
    monkeypatch.setattr(
        pairs, "environment", lambda *a: usual(*a) | {"JAX_NUM_PROCESSES": next(counts)}
    )
    codes = pairs.run(tmp_path, *pairs.command("generate", "the dog", "--length", "8"))
    assert codes == [1, 1]
    told = "the same number of processes (JAX_NUM_PROCESSES), got (2, 3); correct one"
    assert told in pairs.said(tmp_path, 1)
    assert told in pairs.said(tmp_path, 0)


@pytest.mark.parametrize(
    ("address", "count", "number", "message"),
    [
        ("nowhere", "2", "0", r"must be HOST:PORT, got 'nowhere'; such as 10\.0\.0\.1:1234"),
        ("a:1", "2", "2", r"must be from 0 to 1, for 2, got 2; correct it, or raise JAX_NUM"),
        ("a:1", "two", "0", "JAX_NUM_PROCESSES must be a whole number, got 'two'"),
        ("a:1", "0", "0", "there must be processes"),
    ],
)
def test_wrong_words_are_refused_before_anything_starts(
    monkeypatch, address, count, number, message
):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", address)
    monkeypatch.setenv("JAX_NUM_PROCESSES", count)
    monkeypatch.setenv("JAX_PROCESS_ID", number)
    monkeypatch.setattr(ending, "set_last_words", None)
    assert sharding.connection_requested()
    with pytest.raises(ValueError, match=message):
        sharding.connect()
    assert not sharding.connected()


def test_one_process_is_alone(monkeypatch):
    monkeypatch.delenv("JAX_COORDINATOR_ADDRESS", raising=False)
    assert not sharding.connection_requested()
    assert not sharding.several_processes()
    assert sharding.is_leader()
    sharding.leave(3, "nobody hears it")  # and this process lives on
    assert sharding.describe_lost_process(ValueError("Gloo")) is None
