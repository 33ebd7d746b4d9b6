"""What bubblewrap would do for `run_programs`: the cost of a program, and our attacks inside it.

bubblewrap sets up namespaces and mounts for one command. Here it gets those that ours have: a new
namespace of each kind, no capabilities, Python's folders read-only, and an empty folder in memory.
Each program is then an interpreter of its own, and its exit code the verdict. Times are medians of
one program after the other. Attacks that need a limit on time, memory or processes are left out:
bubblewrap has none, and they would harm this machine.

Needs Linux and bubblewrap (`apt-get install bubblewrap`).

    python benchmarks/sandboxes.py [--repeats 20]
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sake_jax.evaluate.sandbox import run_programs
from sake_jax.evaluate.sandbox.contained.server import WARM

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "evaluate" / "sandbox"))
from attacks import FAKES, REACH, TEST, WRONG

SHORT = "import math; assert math.gcd(4, 6) == 2"
USUAL = f"import {', '.join(WARM.split())}"
SECONDS = 5
MEMORY = 1 << 30


def bubblewrap() -> list[str]:
    """The words before a command."""
    python = Path(sys.executable).resolve()
    folders = ["/usr", "/lib", "/lib64", "/bin", str(python.parents[1])]
    shown = [word for path in folders if os.path.exists(path) for word in ("--ro-bind", path, path)]
    apart = ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    rights = ["--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "program"]
    inside = [
        "--dev",
        "/dev",
        "--size",
        str(16 << 20),
        "--tmpfs",
        "/scratch",
        "--chdir",
        "/scratch",
    ]
    return ["bwrap", *apart, *rights, *shown, *inside, str(python), "-s", "-S", "-P", "-c"]


def theirs(source: str) -> int | None:
    """The exit code of a program inside; None if it had to be ended."""
    try:
        done = subprocess.run(
            [*bubblewrap(), source], capture_output=True, timeout=SECONDS, preexec_fn=_limited
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def _limited() -> None:
    """Not bubblewrap's doing: so that nothing here can harm the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def milliseconds(source: str, repeats: int) -> tuple[float, float]:
    """Of one program: ours, and inside bubblewrap."""
    run_programs([source])
    began = time.perf_counter()
    run_programs([source] * (repeats + 1), workers=1)
    ours = (time.perf_counter() - began) * 1e3
    began = time.perf_counter()
    run_programs([source], workers=1)  # with the start of its server
    ours -= (time.perf_counter() - began) * 1e3
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        assert theirs(source) == 0
        times.append((time.perf_counter() - began) * 1e3)
    return ours / repeats, statistics.median(times)


def attacks() -> dict[str, dict[str, str]]:
    """Those that need no limit, by what they are after."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"home": folder, "folder": folder, "repository": folder}
        told = {"port": 1, "name": "\0nobody", "secret": "a secret"}
        reach = {name: attack.format(**places, **told) for name, attack in REACH.items()}
        fakes = {name: WRONG + fake.format(**places, **told) + TEST for name, fake in FAKES.items()}
    return {"reach the host": reach, "pass with a wrong answer": fakes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    if shutil.which("bwrap") is None:
        parser.error("bubblewrap is missing: apt-get install bubblewrap")
    print("| a program that | ours, ms | bubblewrap, ms |\n|---|---|---|")
    for name, source in {"is short": SHORT, "imports what is usual": USUAL}.items():
        ours, wrapped = milliseconds(source, options.repeats)
        print(f"| {name} | {ours:.0f} | {wrapped:.0f} |")
    print("\n| attacks that | tried | stopped by ours | stopped by bubblewrap | the others |")
    print("|---|---|---|---|---|")
    for aim, programs in attacks().items():
        ours = [not each.passed for each in run_programs(list(programs.values()))]
        through = [name for name, source in programs.items() if theirs(source) == 0]
        stopped = len(programs) - len(through)
        print(f"| {aim} | {len(programs)} | {sum(ours)} | {stopped} | {', '.join(through)} |")


if __name__ == "__main__":
    main()
