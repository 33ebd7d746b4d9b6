"""Programs: how they end, what limits do to them, and what happens when the server dies."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from sake_jax.evaluate.sandbox import HUMAN_EVAL, Limits, Outcome, fork_server, run, run_programs
from sake_jax.evaluate.sandbox.contained.watch import LATEST
from sake_jax.evaluate.sandbox.containment import Containment, containment
from sake_jax.evaluate.sandbox.fork_server import ForkServer

needs_namespaces = pytest.mark.skipif(
    not sys.platform.startswith("linux") or containment().refused is not None,
    reason="the system has no namespaces to give",
)
both_ways = pytest.mark.parametrize(
    "unsafe", [pytest.param(False, marks=needs_namespaces), True], ids=["contained", "unsafe"]
)
HERE = Path(__file__).parent
QUICK = Limits(seconds=2.0)


def says(value):
    """A program that fails with a value's text."""
    return f"raise ValueError({value})"


def words(program, **settings):
    """What it said."""
    (outcome,) = run_programs([program], **settings)
    assert outcome.why.startswith("failed: ValueError: "), outcome.why
    return outcome.why.removeprefix("failed: ValueError: ")


ENDINGS = {
    "": "passed",
    "assert True": "passed",
    "assert 1 == 2, 'one is not two'": "failed: AssertionError: one is not two",
    "assert False": "failed: AssertionError",
    "nothing": "failed: NameError: name 'nothing' is not defined",
    "raise KeyError('a\\nb\\x1b[31m')": "failed: KeyError: 'a\\nb\\x1b[31m'",
    "raise OSError('a\\n\\tb \\x1b[31m')": "failed: OSError: a b ?[31m",
    "input()": "failed: EOFError: EOF when reading a line",
    "raise MemoryError": "out of memory",
    "raise SystemExit": "exited",
    "import os; os._exit(3)": "exited",
    "import os; os.kill(os.getpid(), 15)": "killed by signal 15",
    "while True: pass": "timed out",
    "def (": "syntax error: SyntaxError: invalid syntax",
    "x = 1\n  y = 2": "syntax error: IndentationError",
    "x = '\ud800'": "syntax error: UnicodeEncodeError",
    "x = 1\0": "syntax error: ",
    "(" * 100_000: "syntax error: ",
    "print('x' * 10**6)": "passed",
    "import sys; sys.stdout.write('x' * 10**7); sys.stderr.write('y' * 10**7)": "passed",
    "# " + "x" * 5_000_000: "passed",
    "x = [\n" + "1,\n" * 20_000 + "]\nassert len(x) == 20_000": "passed",
    "import threading\nthreading.Thread(target=lambda: 1 / 0).start()": "passed",
    "if __name__ == '__main__': raise SystemExit": "passed",
    "from dataclasses import *\n@dataclass\nclass A:\n    x: int\nassert A(1) == A(1)": "passed",
    "import pickle\nclass A: pass\npickle.loads(pickle.dumps(A()))": "passed",
    "import doctest; assert doctest.testmod().failed == 0": "passed",
    "import sys; assert not {'jax', 'numpy', 'ctypes', 'contained'} & set(sys.modules)": "passed",
    "import os; assert os.listdir() == [] and not os.environ": "passed",
    "open('x', 'w').write('y'); assert open('x').read() == 'y'": "passed",
    "import tempfile; tempfile.TemporaryFile().write(b'x')": "passed",
    "import os; open(os.devnull, 'w').write('x')": "passed",
}


@both_ways
def test_endings_and_their_order(unsafe):
    """Slow programs stand between quick ones; outcomes come back in the programs' order."""
    found = run_programs(list(ENDINGS), limits=QUICK, workers=3, unsafe=unsafe)
    for outcome, (source, why) in zip(found, ENDINGS.items(), strict=True):
        assert outcome.why.startswith(why), source[:80]
        assert outcome.passed == (outcome.why == "passed")
        assert 0 <= outcome.seconds < LATEST * QUICK.seconds + 5, (
            "the clock is only the last resort"
        )
    assert found[list(ENDINGS).index("while True: pass")].seconds >= QUICK.seconds


STANDARD = """
import array, asyncio, base64, bisect, bz2, calendar, cmath, collections, concurrent.futures
import contextlib, copy, csv, dataclasses, datetime, decimal, difflib, enum, fractions, functools
import hashlib, heapq, html, io, itertools, json, logging, lzma, math, multiprocessing, numbers
import operator, os, pathlib, pickle, queue, random, re, secrets, shutil, signal, socket, sqlite3
import ssl, statistics, string, struct, subprocess, tempfile, textwrap, threading, time, timeit
import traceback, types, typing, unicodedata, unittest, urllib.parse, uuid, xml.dom, zlib, zoneinfo
assert hashlib.md5(b"x").hexdigest() == "9dd4e461268c8034f5c8564e155c67a6"
assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    assert list(pool.map(abs, [-1, -2])) == [1, 2]
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
with multiprocessing.get_context("fork").Manager() as manager:
    assert dict(manager.dict({"a": 1})) == {"a": 1}
assert asyncio.run(asyncio.sleep(0, 3)) == 3
"""


@needs_namespaces
def test_the_standard_library_works_inside():
    assert run_programs([STANDARD])[0].why == "passed"


@both_ways
def test_verdicts_do_not_depend_on_luck(unsafe):
    """Hashes and random numbers are the same in all programs, and in all runs."""
    program = "import random\n" + says("(hash('x'), random.random(), list({'a', 'b', 'c'}))")
    assert words(program, unsafe=unsafe) == words(program, unsafe=unsafe)


THREADS = """
import threading, time
for _ in range({}): threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
"""
FILES = "for at in range({}): open(str(at), 'wb').write(bytes(1 << 20))"
TOO_MUCH = {  # one limit, a program beyond it, its end, a program within it
    "seconds": (0.3, "import time; time.sleep(0.6)", "timed out", "1 + 1"),
    "memory": (128 << 20, "bytearray(200 << 20)", "out of memory", "bytearray(20 << 20)"),
    "file_size": (1 << 19, FILES.format(1), "failed: OSError: [Errno 27]", "open('x', 'w')"),
    "disk": (2 << 20, FILES.format(3), "failed: OSError: [Errno 28]", FILES.format(1)),
    "open_files": (
        20,
        "import os\nx = [os.dup(0) for _ in range(20)]",
        "failed: OSError: [Errno 24]",
        "import os\nx = [os.dup(0) for _ in range(10)]",
    ),
    "processes": (
        3,
        THREADS.format(3),
        "failed: RuntimeError: can't start new thread",
        THREADS.format(2),
    ),
}


@needs_namespaces
@pytest.mark.parametrize("name", TOO_MUCH)
def test_limits(name):
    limit, beyond, why, within = TOO_MUCH[name]
    found = run_programs([beyond, within], limits=Limits(**{name: limit}))
    assert found[0].why.startswith(why)
    assert not found[0].passed
    assert found[1].why == "passed"


@needs_namespaces
def test_other_limits_let_the_same_programs_pass():
    """It was the limit that stopped them."""
    found = run_programs([beyond for _, beyond, _, _ in TOO_MUCH.values()])
    assert [each.why for each in found] == ["passed"] * len(TOO_MUCH)


@pytest.mark.parametrize(
    "unsafe",
    [
        pytest.param(False, marks=needs_namespaces, id="contained"),
        pytest.param(True, marks=pytest.mark.slow, id="unsafe"),
    ],
)
def test_processor_time(unsafe):
    """Deaf to the first signal; sleeping costs nothing."""
    busy = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    limits = Limits(seconds=30.0, cpu_seconds=1)
    found = run_programs([busy, "import time; time.sleep(0.5)"], limits=limits, unsafe=unsafe)
    assert [each.why for each in found] == ["timed out", "passed"]
    assert 1 <= found[0].seconds < 29


def test_limits_are_checked():
    for name, wrong in (("seconds", 0), ("memory", 1 << 20), ("processes", 0), ("disk", 0)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            Limits(**{name: wrong})
    assert Limits(seconds=3.0) == HUMAN_EVAL
    for name, wrong in (("cpu_seconds", 0), ("file_size", -1), ("open_files", 3)):
        with pytest.raises(ValueError, match=f"{name} must be at least"):
            Limits(**{name: wrong})


@needs_namespaces
def test_arguments_and_no_programs():
    assert run_programs([]) == []
    with pytest.raises(ValueError, match="must be a list of sources"):
        run_programs("assert True")
    with pytest.raises(ValueError, match="workers must be at least 1"):
        run_programs(["assert True"], workers=0)


@needs_namespaces
def test_workers_run_side_by_side():
    """Together they sleep for longer than the call takes, even if it is slow to begin."""
    begun = time.monotonic()
    outcomes = run_programs(["import time; time.sleep(4)"] * 4, workers=4)
    assert all(each.passed for each in outcomes)
    assert time.monotonic() - begun < sum(each.seconds for each in outcomes)


@needs_namespaces
def test_calls_from_several_threads():
    programs = [[f"assert {number} % 2", "assert True"] for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run_programs, programs))
    assert [[each.passed for each in pair] for pair in found] == [[False, True], [True, True]] * 2


def test_unsafe_programs_leave_no_folder(monkeypatch, tmp_path):
    """They work in one of their own all the same, and do not inherit the environment."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PLANTED", "x")
    program = "import os\nopen('x', 'w').close()\n" + says("(os.getcwd(), dict(os.environ))")
    folder, environment = eval(words(program, unsafe=True))
    assert environment == {}
    assert Path(folder).is_relative_to(tmp_path)
    ill(monkeypatch, lambda number, jobs: number == 1)
    assert run_programs(["open('x', 'w').close()"], unsafe=True)[0].passed
    assert list(tmp_path.iterdir()) == [], "not even where the server was killed"


def test_refuses_without_namespaces(monkeypatch):
    monkeypatch.setattr(run, "containment", lambda: Containment("unshare: no", None))
    rule = "must run in namespaces of their own, got 'unshare: no'; allow them .* unsafe=True"
    with pytest.raises(ValueError, match=rule):
        run_programs(["assert True"])
    assert run_programs(["assert True"], unsafe=True)[0].passed


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        pytest.param("filtered.py", "unshare: Operation not permitted", marks=needs_namespaces),
        ("attacks.py", "the server died"),  # ends at once
    ],
)
def test_the_trial_finds_what_is_refused(monkeypatch, script, complaint):
    monkeypatch.setattr(fork_server, "SCRIPT", HERE / script)
    assert containment.__wrapped__() == Containment(complaint, None)


@needs_namespaces
def test_a_refusal_after_the_trial(monkeypatch):
    assert containment().refused is None
    monkeypatch.setattr(fork_server, "SCRIPT", HERE / "filtered.py")
    with pytest.raises(RuntimeError, match="unshare: Operation not permitted"):
        run_programs(["assert True"])


def ill(monkeypatch, falls_ill, number=signal.SIGKILL):
    """Servers that get a signal before they answer if `falls_ill(jobs sent so far)`."""
    started = []

    class Ill(ForkServer):
        def __init__(self, *arguments, **settings):
            super().__init__(*arguments, **settings)
            self.jobs = []
            started.append(self)

        def send(self, message):
            if "job" in message:
                self.jobs.append(message["job"])
            super().send(message)

        def receive(self, seconds):
            if getattr(self, "jobs", None) and falls_ill(len(started), self.jobs):
                os.kill(self.process_id, number)
            return super().receive(seconds)

    monkeypatch.setattr(run, "ForkServer", Ill)
    return started


@both_ways
def test_a_server_that_dies_once(monkeypatch, unsafe):
    """Programs that were running are run again, one at a time; nothing is lost."""
    started = ill(monkeypatch, lambda number, jobs: number == 1)
    found = run_programs(["assert True", "1 / 0"] * 3, workers=3, unsafe=unsafe)
    assert [each.passed for each in found] == [True, False] * 3
    assert len(started) == 2
    assert len(started[0].jobs) == 3
    assert started[1].jobs[:3] == started[0].jobs


@both_ways
def test_a_program_that_kills_the_server_is_the_only_one_to_fail(monkeypatch, unsafe):
    started = ill(monkeypatch, lambda number, jobs: 2 in jobs and jobs[-1] <= 3)
    found = run_programs(["assert True"] * 6, workers=2, unsafe=unsafe)
    assert found[2] == Outcome(False, "lost: the server died", 0.0)
    assert [each.passed for each in found] == [True, True, False, True, True, True]
    assert len(started) == 3


@needs_namespaces
def test_a_server_that_hangs(monkeypatch):
    monkeypatch.setattr(run, "GRACE", 0.5)
    started = ill(monkeypatch, lambda number, jobs: number == 1, signal.SIGSTOP)
    begun = time.monotonic()
    found = run_programs(["assert True"] * 3, limits=Limits(seconds=0.5), workers=2)
    assert [each.passed for each in found] == [True] * 3
    assert len(started) == 2
    assert time.monotonic() - begun < 20


@needs_namespaces
def test_a_server_that_hangs_with_much_to_read(monkeypatch):
    """More than a pipe holds: to write it must not wait forever either."""
    monkeypatch.setattr(run, "GRACE", 0.5)
    ill(monkeypatch, lambda number, jobs: number < 3, signal.SIGSTOP)
    found = run_programs(["# " + "x" * 10**6], limits=Limits(seconds=0.5))
    assert found == [Outcome(False, "lost: the server does not answer", 0.0)]


@needs_namespaces
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs to be root")
def test_as_another_user(monkeypatch):
    """Who is not root makes namespaces through one of users; limits hold there too."""
    somebody = {"user": 12345, "group": 12345, "extra_groups": []}
    python = next(filter(partial(can_run, somebody), (sys.executable, "/usr/bin/python3")), None)
    if python is None:
        pytest.skip("no interpreter that others may run")
    fork = "import os, time\nfor _ in range(50):\n    if os.fork() == 0: time.sleep(60)"
    programs = ["assert True", f"import os\n{says('os.getuid()')}", fork, "open('/x', 'w')"]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(fork_server.SCRIPT.parent, Path(folder) / "contained")
        monkeypatch.setattr(fork_server, "SCRIPT", Path(folder) / "contained" / "__main__.py")
        monkeypatch.setattr(fork_server.subprocess, "Popen", partial(subprocess.Popen, **somebody))
        monkeypatch.setattr(sys, "executable", python)
        monkeypatch.setattr(run, "containment", containment.__wrapped__)
        found = run_programs(programs, limits=Limits(processes=10))
    assert found[0].why == "passed"
    assert found[1].why == "failed: ValueError: 1000"
    assert found[2].why.startswith("failed: BlockingIOError")
    assert found[3].why.startswith("failed: OSError: [Errno 30]")


def can_run(somebody, python):
    """Whether that user may run an interpreter, and it is new enough."""
    trial = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    try:
        return subprocess.run(trial, cwd="/", capture_output=True, **somebody).returncode == 0
    except OSError:
        return False
