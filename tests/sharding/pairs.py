"""Two processes of four devices each on this machine, as a run on two hosts would be."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from compiling import flags

HERE = Path(__file__).parent
COUNT = 2
PATIENCE = 600
"""Seconds for a pair, on a machine that has other things to do."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def environment(number: int | None, port: int, devices: int = 4) -> dict[str, str]:
    """Of process `number`, or of one that is alone if it is None."""
    path = os.pathsep.join([str(HERE.parent), str(HERE)])
    found = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags(devices), "PYTHONPATH": path}
    found |= {"PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    if number is None:
        return found
    found |= {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}"}
    return found | {"JAX_NUM_PROCESSES": str(COUNT), "JAX_PROCESS_ID": str(number)}


@contextlib.contextmanager
def started(folder: Path, *words: str) -> Iterator[list[subprocess.Popen]]:
    """Both processes; what they say is in out-0, err-0, out-1, err-1. None survives."""
    port, running = free_port(), []
    folder.mkdir(exist_ok=True, parents=True)
    for number in range(COUNT):
        with (folder / f"out-{number}").open("w") as out, (folder / f"err-{number}").open("w") as e:
            environ = environment(number, port)
            running.append(subprocess.Popen(words, stdout=out, stderr=e, env=environ, cwd=folder))
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def run(folder: Path, *words: str) -> list[int]:
    """Both processes to their ends; their exit codes."""
    with started(folder, *words) as running:
        return [process.wait(PATIENCE) for process in running]


def said(folder: Path, number: int) -> str:
    return (folder / f"err-{number}").read_text()


def command(*words: str) -> tuple[str, ...]:
    """A command of sake-jax as a program."""
    return (sys.executable, "-m", "sake_jax.cli", *words)


def scenario(folder: Path, name: str, *words: str) -> list[dict]:
    """What a scenario of scenarios.py found in each process."""
    codes = run(folder, sys.executable, str(HERE / "scenarios.py"), name, *words)
    assert codes == [0] * COUNT, said(folder, 0)[-3000:] + said(folder, 1)[-3000:]
    return [json.loads((folder / f"found-{n}.json").read_text()) for n in range(COUNT)]


def ended(running: list[subprocess.Popen], survivor: int, within: float) -> float:
    """Seconds until a process has ended by itself."""
    begun = time.monotonic()
    code = running[survivor].wait(within)
    assert code not in (0, None)
    return time.monotonic() - begun
