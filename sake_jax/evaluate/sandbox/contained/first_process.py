"""The first process of a program's namespaces. It waits; when it ends, everything inside does."""

import contextlib
import json
import os
import signal
from typing import NoReturn

from . import ceilings, kernel, namespaces

MOST_DESCRIPTORS = 1 << 16


def begin(house: ceilings.House, channel: int, end: int) -> int:
    """Gives up all rights and forks the program's process. Returns only there."""
    try:
        _silence()
        _close_all_but(channel, end, house.processes)
        os.setsid()
        _volunteer(house.processes)
        if house.contained:
            namespaces.confine()
        kernel.die_with_parent()
        child = os.fork()
        if child == 0:
            kernel.die_with_parent()
            _close_all_but(channel)
            os.environ.clear()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            ceilings.bind(house.limits, house.most)
            return channel
    except (OSError, ValueError) as error:
        _tell(end, {"lost": getattr(error, "strerror", None) or str(error)})
    _wait(child, end)


def _wait(child: int, end: int) -> NoReturn:
    """Until the program's process has ended; orphans of the program end up here as well."""
    while True:
        ended, status, usage = os.wait4(-1, 0)
        if ended == child:
            cpu = usage.ru_utime + usage.ru_stime
            _tell(end, {"code": os.waitstatus_to_exitcode(status), "cpu": cpu})


def _tell(end: int, message: dict) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(end, json.dumps(message).encode())
    os._exit(0)


def _silence() -> None:
    """Nothing to read, and what is written goes nowhere: a flood fills neither memory nor disk."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)


def _close_all_but(*kept: int | None) -> None:
    low = 3
    for descriptor in sorted(each for each in kept if each is not None):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, MOST_DESCRIPTORS)


def _volunteer(processes: int | None) -> None:
    """When the machine runs out of memory, a program goes first, not the caller."""
    with contextlib.suppress(OSError, TypeError):
        file = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=processes)
        os.write(file, b"1000")
        os.close(file)
