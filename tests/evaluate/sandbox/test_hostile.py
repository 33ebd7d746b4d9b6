"""Hostile programs: contained, scored as failures, and a good program beside each passes."""

import contextlib
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

import pytest
from sandbox.attacks import FAKES, GREED, REACH, TEST, WRONG

from sake_jax.evaluate.sandbox import Limits, run_programs
from sake_jax.evaluate.sandbox import fork_server as module
from sake_jax.evaluate.sandbox.contained.watch import LATEST
from sake_jax.evaluate.sandbox.containment import containment

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or containment().refused is not None,
    reason="the system has no namespaces to give",
)

GOOD = "import math\nassert math.gcd(12, 18) == 6\n"
SECRET = "a secret of the host"
LIMITS = Limits(seconds=2.5, memory=128 << 20, processes=8)
EXPECTED = {  # the others fail in ways that depend on Python's version
    "loop": "timed out",
    "loop deaf to signals": "timed out",
    "sleep": "timed out",
    "stop itself": "timed out",
    "fork bomb": "timed out",
    "forks without limit": "failed: BlockingIOError",
    "thread bomb": "failed: RuntimeError: can't start new thread",
    "10 GB": "out of memory",
    "little by little": "out of memory",
    "memory of many processes": "out of memory",
    "shared memory": "failed: PermissionError",
    "flood of stdout": "timed out",
    "flood of stderr": "timed out",
    "full disk": "failed: OSError: [Errno 28]",
    "many files": "failed: OSError: [Errno 28]",
    "huge file": "failed: OSError: [Errno 27]",
    "sparse file": "failed: OSError: [Errno 27]",
    "descriptors": "failed: OSError: [Errno 24]",
    "raised limits": "failed: ValueError",
    "recursion": ("killed by signal 11", "failed: RecursionError", "timed out"),
    "huge message": "failed: ValueError: xxx",
    "message that never comes": "timed out",
    "message that exits": "exited",
    "sys.exit": "exited",
    "SystemExit": "exited",
    "os._exit": "exited",
    "exit in a thread": "exited",
    "kill itself": "killed by signal 9",
    "parent killed": "killed by signal 9",
    "abort": "killed by signal 6",
    "execv": "failed: PermissionError",
    "guesses": "failed: wrote to the channel",
    "runner's own functions": "failed: wrote to the channel",
    "collector": "failed: AssertionError",
    "secret read again": "failed: AssertionError",
    "tracer": "failed: AssertionError",
    "profiler": "failed: AssertionError",
    "the real profiler": "failed: PermissionError: programs may not use sys.setprofile",
    "a name that lies": "failed: ImportError",
    "memory that nobody counts": "failed: PermissionError",
    "memory of zeros": "failed: FileNotFoundError",
    "visitors that nobody lets in": "out of memory",
    "letters that nobody reads": "out of memory",
    "sockets in letters": "timed out",
    "larger buffers": "failed: PermissionError",
    "pair of sockets to the kernel": "failed: OSError: [Errno 97]",
    "the real tracer": "failed: PermissionError: programs may not use sys.settrace",
    "guard taken off": "failed: TypeError",
    "signals": "failed: AssertionError",
    "ctypes": "failed: ImportError",
    "interpreter's tests": "failed: ImportError",
    "another interpreter": "failed: ImportError",
    "child goes on": "exited",
    "child goes on, parent waits": "exited",
    "main guard": "failed: AssertionError",
    "write to Python": ("failed: OSError: [Errno 30]", "failed: PermissionError"),
    "environment": "failed: AssertionError",
    "secret in home": "failed: FileNotFoundError",
    "secret in a folder": "failed: FileNotFoundError",
    "local socket": "failed: OSError: [Errno 101]",
    "socket to a machine's host": "failed: OSError: [Errno 97]",
    "socket to the kernel": "failed: OSError: [Errno 97]",
    "another executable": "failed: PermissionError",
    "executable memory from a file": "failed: PermissionError",
}


class Outside:
    """What lies outside for programs to reach, and what it looks like when they did."""

    def __init__(self, folder):
        self.folder = folder
        self.home, self.repository = map(self.inside, (Path.home(), Path(__file__).parent))
        for place in (self.folder, self.home, self.repository):
            (place / "secret").write_text(SECRET)
        self.listeners = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
        self.name = f"\0hostile-{os.getpid()}-{time.monotonic_ns()}"
        self.listeners[1].bind(self.name)
        self.listeners[1].listen()

    def inside(self, place):
        """A folder there, or in our own where we may not write."""
        writable = place if os.access(place, os.W_OK) else self.folder.parent
        return Path(tempfile.mkdtemp(prefix=".hostile-", dir=writable))

    def address(self, attack):
        return attack.format(
            home=str(self.home),
            folder=str(self.folder),
            repository=str(self.repository),
            port=self.listeners[0].getsockname()[1],
            name=self.name,
            secret=SECRET,
        )

    def visitors(self):
        """Who connected."""
        for listener in self.listeners:
            listener.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                yield listener.accept()

    def files(self):
        places = (self.folder, self.home, self.repository)
        return [sorted(file.name for file in place.iterdir()) for place in places]

    def close(self):
        for place in (self.home, self.repository):
            shutil.rmtree(place)
        for listener in self.listeners:
            listener.close()


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    found = Outside(tmp_path_factory.mktemp("outside"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    """Servers with a name of their own, so that their processes can be told from others'."""
    folder = tmp_path_factory.mktemp("marked") / "contained"
    shutil.copytree(module.SCRIPT.parent, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SCRIPT", folder / "__main__.py")
        patch.setenv("PLANTED", SECRET)
        yield folder


def processes_of(folder):
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue  # it has just ended
    return found


@pytest.fixture(scope="module")
def outcomes(outside, marked):
    """Of all attacks, by name, each with that of a good program that ran beside it."""
    attacks = {name: outside.address(attack) for name, attack in (GREED | REACH).items()}
    attacks |= {name: WRONG + outside.address(fake) + TEST for name, fake in FAKES.items()}
    programs = [each for attack in attacks.values() for each in (attack, GOOD)]
    found = run_programs(programs, limits=LIMITS, workers=8)
    return dict(zip(attacks, zip(found[::2], found[1::2], strict=True), strict=True))


@pytest.mark.parametrize("name", [*GREED, *REACH, *FAKES])
def test_an_attack_fails_and_a_good_program_beside_it_passes(outcomes, name):
    bad, good = outcomes[name]
    assert not bad.passed
    assert bad.why.startswith(EXPECTED.get(name, ("failed: ", "killed by signal ", "exited")))
    assert len(bad.why) <= 300
    assert bad.why.isprintable()
    assert bad.seconds < LATEST * LIMITS.seconds + 5
    assert good.passed, good.why


def test_the_page_about_security_counts_these():
    page = (Path(__file__).parents[3] / "docs/security.md").read_text()
    table = page[page.index("## What a model writes") : page.index("A program's time")]
    counts = re.findall(r"\| (\d+) programs \|", table)
    assert list(map(int, counts)) == [len(GREED), len(REACH), len(FAKES)]


def test_nothing_outside_has_changed(outcomes, outside):
    assert outside.files() == [["secret"]] * 3
    assert not list(outside.visitors())
    assert Path(os.__file__).stat().st_size > 1000, "Python is still there"


def test_nothing_runs_on(outcomes, marked):
    assert processes_of(marked) == []


def test_a_process_in_the_background_ends_with_its_program(marked):
    """The program itself has come to its end, and passes."""
    background = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\n"
    slow = "import time; time.sleep(0.5)"
    begun = time.monotonic()
    found = run_programs([background, slow, background], limits=LIMITS, workers=1)
    assert [each.passed for each in found] == [True] * 3
    assert time.monotonic() - begun < 30
    assert processes_of(marked) == []


def test_the_listener_and_the_secret_can_be_reached_without_containment(outside):
    """So that the attacks can succeed."""
    chosen = ["local socket", "abstract socket", "secret in a folder", "symbolic link"]
    attacks = [outside.address(REACH[name]) for name in chosen]
    assert [each.passed for each in run_programs(attacks, unsafe=True)] == [True] * 4
    assert len(list(outside.visitors())) == 2


KERNEL = """
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, *arguments):
    passed = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    found = getattr(libc, name)(*passed)
    if found == 0 and name == "syscall" and arguments[0] in CLONE: os._exit(0)  # a child
    assert found < 0 and ctypes.get_errno() == errno.EPERM, (name, arguments, ctypes.get_errno())
CLONE = (56, 220)
clone = CLONE[platform.machine() == "aarch64"]
read = 310 if platform.machine() == "x86_64" else 270
refused("unshare", 0x10000000)
refused("unshare", 0x00020000)
refused("syscall", clone, 0x10000000 | 17, 0, 0, 0, 0)
refused("mount", b"none", b"/scratch", b"tmpfs", 0, None)
refused("mount", b"none", b"/", None, 32 | 4096, None)
refused("umount2", b"/scratch", 2)
refused("chroot", b"/scratch")
refused("ptrace", 16, 1, 0, 0)
refused("syscall", read, 1, 0, 0, 0, 0, 0)
refused("setns", 0, 0)
refused("shmget", 0, 1 << 20, 0o1600)
refused("vmsplice", 1, None, 0, 0)
refused("syscall", 444, None, 0, 1)  # landlock: its rules are memory that no limit counts
refused("execv", b"/bin/true", None)
refused("sethostname", b"other", 5)
refused("setuid", 0) if libc.setuid(0) < 0 and ctypes.get_errno() == errno.EPERM else None
status = (ctypes.c_uint32 * 6)()
libc.capget((ctypes.c_uint32 * 2)(0x20080522, 0), status)
assert list(status) == [0] * 6, "no capability"
assert libc.prctl(39, 0, 0, 0, 0) == 1, "no new privileges"
assert libc.prctl(3, 0, 0, 0, 0) == 0, "not dumpable"
assert os.getuid() == os.geteuid() == 1000
"""


def test_the_kernel_refuses_what_python_cannot_ask_for(outside, monkeypatch):
    """With `ctypes` in their hands, programs are contained all the same."""
    monkeypatch.setattr(module, "SCRIPT", Path(__file__).parent / "unguarded.py")
    reach = [outside.address(attack) for attack in REACH.values()]
    found = run_programs([KERNEL, GOOD, *reach], limits=LIMITS)
    assert [found[0].why, found[1].why] == ["passed", "passed"]
    assert not any(each.passed for each in found[2:])
    assert outside.files() == [["secret"]] * 3
    assert not list(outside.visitors())
