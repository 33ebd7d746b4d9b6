"""Everything that can be gone on with is killed at each of its file operations, and goes on."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compiling import QUICKLY

HERE = Path(__file__).parent
WHOLE = ("convert", "export", "generate", "eval", "experiment")
PARTS = {"convert": 5}
"""A sweep of minutes is cut into parts, each with every that many operations."""
SWEEPS = [
    pytest.param(job, first + 1, PARTS.get(job, 1), id=f"{job}, from {first + 1}")
    for job in WHOLE
    for first in range(PARTS.get(job, 1))
] + [pytest.param("train", 1, 5, id="train, every fifth")]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """kills.c, made by the system's compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a C compiler and Linux are needed to kill at a file operation")
    made = tmp_path_factory.mktemp("library") / "kills.so"
    command = [compiler, "-shared", "-fPIC", "-w", "-o", str(made), str(HERE / "kills.c"), "-ldl"]
    subprocess.run(command, check=True)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("job", "first", "stride"), SWEEPS)
def test_no_kill_loses_anything_or_ends_the_way(job, first, stride, library, tmp_path):
    """Every run that was killed goes on and ends with what an uninterrupted one has made."""
    path = os.pathsep.join(map(str, (HERE, HERE.parent, HERE.parent / "evaluate")))
    environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": path}
    environment |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": QUICKLY}
    # Compiled once, beside the folder that is watched.
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs")}
    environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    words = [sys.executable, "-P", str(HERE / "sweep.py"), job, str(tmp_path)]
    words += [str(first), str(stride)]
    done = subprocess.run(
        words, env=environment, cwd=HERE.parents[1], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    print({name: number for name, number in found.items() if name != "wrong"})
    assert not found["wrong"], "\n".join(found["wrong"])
    # Threads make a few operations more or less.
    assert found["kills"] >= 0.9 * (found["operations"] // stride)
    assert found["halves"] > 0
