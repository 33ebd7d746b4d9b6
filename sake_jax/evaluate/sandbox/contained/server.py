"""The fork server: an interpreter that has started already, copied for each program.

Each program has three processes: a keeper outside its namespaces, which times and judges it; the
first process inside, with whose end all others end; and the program's own. Functions here return
in the youngest of them only, so that a program finds next to nothing in the frames below its own.
"""

import gc
import importlib
import os
import signal
import sys

from . import ceilings, keeper, libraries, namespaces, program, wire

WARM = (
    "bisect collections copy datetime decimal fractions functools hashlib heapq itertools json "
    "math operator random re statistics string typing"
)
"""Modules that programs often import: here they are read once."""


def main() -> None:
    """Prepares, says so, and serves until the caller hangs up."""
    settings = _settings()
    house = _prepare(settings)
    doomed = program.keys()
    gc.freeze()  # so that collections leave the pages shared with us alone
    job = _serve()
    channel = keeper.keep(job, house)
    program.run(job["source"], channel, doomed)


def _settings() -> dict:
    """The caller's first line; it sends no other before it has an answer."""
    reader, lines = wire.Lines(0), []
    while not lines:
        lines = reader.read()
        if reader.ended:
            os._exit(0)
    return lines[0]


def _prepare(settings: dict) -> ceilings.House:
    """What is the same for all programs. Ends the process where the system refuses it."""
    # A terminal's interrupt is the caller's business, and so is what its thread had blocked.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o022)
    contained, limits = settings["contained"], settings["limits"]
    try:
        processes = namespaces.open_processes()
        most = ceilings.allowed(limits, contained, settings["workers"])
        shared = settings["libraries"]
        if contained:
            shared = libraries.shared_libraries() if shared is None else shared
            namespaces.settle(processes, shared)
        for name in WARM.split():
            importlib.import_module(name)
    except Exception as error:
        wire.answer({"refused": f"{getattr(error, 'strerror', None) or error}"})
        sys.exit(1)
    wire.answer({"ready": True, "libraries": shared})
    return ceilings.House(contained, limits, processes, most, settings["folder"])


def _serve() -> dict:
    """Forks a keeper for each job. Returns the job, and only in its keeper."""
    lines = wire.Lines(0)
    while True:
        for job in lines.read():
            try:
                if os.fork() == 0:
                    return job
            except OSError as error:
                wire.answer({"job": job["job"], "lost": f"no keeper: {error.strerror}"})
        if lines.ended:
            os._exit(0)
