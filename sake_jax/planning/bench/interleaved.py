"""Time of several programs, in turn, so that a busy moment hits all of them alike."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Side = Callable[[], Any]
"""One run of a program, to its end; returns what it computed."""


def report_progress(line: str) -> None:
    """Prints a line for whoever waits: tables go to the standard output."""
    print(line, file=sys.stderr, flush=True)


def measure_in_turn(
    title: str,
    sides: dict[str, Side],
    repeats: int,
    bases: list[str],
    check: Callable[[dict[str, Any]], None] = lambda results: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """All sides once, to compile, then in turn; each round begins with another one.

    Args:
      title: for the reports of progress.
      sides: what to run, by name.
      repeats: rounds.
      bases: names of the sides that others are divided by.
      check: looks at what the first runs computed, and raises if it is wrong.
      clock: `time.process_time` for processor time, on machines that have other work.

    Returns the seconds of the first runs and of all others, "against" each base the ratios, and
    how many cores other processes used in the meantime.
    """
    names, first, results = list(sides), {}, {}
    seconds: dict[str, list[float]] = {name: [] for name in names}

    def timed(name: str) -> float:
        begin = clock()
        results[name] = sides[name]()
        return clock() - begin

    for name in names:
        first[name] = timed(name)
        report_progress(f"{title}: first run {first[name]:.2f} s, {name}")
    check(results)
    others, begin = other_cpu_seconds(), time.perf_counter()
    for turn in range(repeats):
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            seconds[name].append(timed(name))
        now = ", ".join(f"{seconds[name][-1]:.2f}" for name in names)
        report_progress(f"{title}: round {turn + 1} of {repeats}: {now} s")
    others = max(0.0, other_cpu_seconds() - others) / (time.perf_counter() - begin)
    against = {
        base: {name: ratio(seconds[name], seconds[base]) for name in names} for base in bases
    }
    times = {"title": title, "first": first, "seconds": seconds}
    return times | {"against": against, "others": others}


def ratio(a: list[float], b: list[float]) -> list[float]:
    """Of the medians, and the ends of its 95 % interval: a bootstrap over rounds."""
    numbers = np.array([a, b])
    rounds = np.random.default_rng(0).integers(0, len(a), (2000, len(a)))
    # The same rounds of both: a busy moment in one of them was one in the other.
    medians, drawn = np.median(numbers, axis=1), np.median(numbers[:, rounds], axis=2)
    low, high = np.quantile(drawn[0] / drawn[1], [0.025, 0.975])
    return [float(medians[0] / medians[1]), float(low), float(high)]


def other_cpu_seconds() -> float:
    """Processor time that everything else has used so far on the cores that this process may use;
    0 where unknown."""
    try:
        own = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    except (OSError, AttributeError):
        return 0.0
    ticks = [int(field) for line in lines if line[0] in own for field in line[1:8]]
    idle = sum(ticks[3::7]) + sum(ticks[4::7])
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK") - time.process_time()
