"""Keeps one program from outside its namespaces: starts it, ends it, answers the caller."""

import contextlib
import os
import signal
import tempfile
import time
from typing import NoReturn

from . import first_process, kernel, namespaces, watch, wire
from .ceilings import House

PATIENCE = 5.0
"""Seconds that killed processes have to be gone."""


def keep(job: dict, house: House) -> int:
    """Runs a program and answers the caller.

    Returns only in the program's own process: the channel to its keeper.
    """
    near, far = watch.channel()
    ended, end = os.pipe()
    try:
        os.close(0)  # further jobs are not ours
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _separate(house)
        kernel.die_with_parent()
        first = os.fork()
    except OSError as error:
        _answer(job, {"lost": error.strerror or str(error)})
    if first == 0:
        return first_process.begin(house, far, end)
    os.close(far)
    os.close(end)
    try:
        message = watch.Watch(house, near, ended, first).verdict()
    except Exception as error:
        message = {"lost": f"{type(error).__name__}: {error}"[:100]}
    _stop(first, house.contained)
    _answer(job, message)


def _separate(house: House) -> None:
    """Into namespaces, or at least into an empty folder."""
    if house.contained:
        assert house.processes is not None
        namespaces.separate(house.processes, house.limits["disk"])
    else:
        os.chdir(tempfile.mkdtemp(dir=house.folder))


def _stop(first: int, contained: bool) -> None:
    """With the first process of a namespace all others are killed."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(first, signal.SIGKILL) if contained else os.killpg(first, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while os.waitpid(first, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.0005)


def _answer(job: dict, message: dict) -> NoReturn:
    with contextlib.suppress(BrokenPipeError):
        wire.answer({"job": job["job"], **message})
    os._exit(0)
