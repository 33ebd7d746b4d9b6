"""Kills a job at each of its file operations, lets it go on, and looks at what came of it.

`python sweep.py JOB FOLDER FIRST STRIDE`, with the library made of kills.c in LD_PRELOAD. Nothing
here depends on time or luck: a run is killed at its operation number FIRST, the next run STRIDE
operations later, and at a write a second time in the middle of it, until one ends before it is
killed. Each run is a fork of this process, in which everything is imported and nothing has begun:
JAX's threads would not survive it.
"""

import ctypes
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jobs

PATIENCE = 300
"""Seconds for one run; one that hangs counts as a dead end."""
FAILED, WRONG = 3, 4
"""How a run ends that raises, and one whose results are not those of an uninterrupted run."""


class Record(ctypes.Structure):
    """What kills.c keeps, shared by all runs."""

    _fields_ = (
        ("at", ctypes.c_long),
        ("half", ctypes.c_long),
        ("count", ctypes.c_long),
        ("wrote", ctypes.c_long),
        ("name", ctypes.c_char * 32),
        ("path", ctypes.c_char * 4096),
    )


def connect(watched: Path) -> Record:
    library = ctypes.CDLL(None)
    library.kills_record.restype = ctypes.POINTER(Record)
    library.kills_watch(os.fsencode(watched))
    return library.kills_record().contents


def run(job: "jobs.Job", place: Path, log: Path, result: Path | None = None) -> int:
    """One run in a process of its own; its exit code, or minus the signal that ended it.

    With `result` it must end, and what it has made is compared with, or kept as, the right one.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(PATIENCE)
    with log.open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        code = FAILED
        try:
            job.run(place)
            code = 0 if result is None else compare(job.read(place), result)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def compare(made: object, result: Path) -> int:
    text = json.dumps(made, sort_keys=True)
    if not result.exists():
        result.write_text(text)
    if result.read_text() == text:
        return 0
    for place, ours, right in differences(json.loads(text), json.loads(result.read_text())):
        print(f"{place or 'all'}: made {str(ours)[:300]}, right is {str(right)[:300]}")
    return WRONG


def differences(ours: Any, right: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two values of JSON differ, as deep inside as can be named."""
    if isinstance(ours, dict) and isinstance(right, dict) and ours.keys() == right.keys():
        pairs = [(name, ours[name], right[name]) for name in right]
    elif isinstance(ours, list) and isinstance(right, list) and len(ours) == len(right):
        pairs = list(zip(range(len(right)), ours, right, strict=True))
    else:
        pairs = []
        if ours != right:
            yield place, ours, right
    for name, one, other in pairs:
        yield from differences(one, other, f"{place}/{name}")


def sweep(job: "jobs.Job", folder: Path, first: int, stride: int) -> dict:
    """Counts of what was tried, and all that went wrong."""
    place, log, result = folder / "place", folder / "log", folder / "right.json"
    record = connect(place)
    code = run(job, place, log, result)
    assert code == 0, f"without a kill: {code}\n{log.read_text()}"
    tried = {"operations": record.count, "kills": 0, "halves": 0, "wrong": []}
    at, half = first, False
    while True:
        shutil.rmtree(place, ignore_errors=True)
        record.count, record.at, record.half, record.wrote = 0, at, int(half), 0
        if run(job, place, log) != -signal.SIGKILL:
            return tried
        where = f"{at}{' half' * half}: {record.name.decode()} {record.path.decode()}"
        wrote = bool(record.wrote)
        tried["halves" if half else "kills"] += 1
        record.at = 0
        code = run(job, place, log, result)
        if code:
            kind = {FAILED: "dead end", WRONG: "loss"}.get(code, f"ended by {code}")
            tried["wrong"].append(f"{kind} at {where}\n{log.read_text()[-3000:]}")
        at, half = (at, True) if wrote and not half else (at + stride, False)


if __name__ == "__main__":
    name, folder, first, stride = sys.argv[1:]
    found = sweep(jobs.JOBS[name], Path(folder).resolve(), int(first), int(stride))
    (Path(folder) / "found.json").write_text(json.dumps(found, indent=1))
