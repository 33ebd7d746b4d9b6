"""Resource limits of a program, and what its processes use together."""

import contextlib
import dataclasses
import math
import os
import platform
import resource

STACK = 8 << 20
MANY = 1 << 16
NOBODY = 65534
"""Who root becomes before it runs a program: limits on processes do not bind root."""
OUR_OWN = 2
"""The keeper and the first process share the program's user, and count as two of its processes."""


@dataclasses.dataclass(frozen=True)
class House:
    """What is the same for all programs."""

    contained: bool
    limits: dict
    """The fields of `Limits`."""
    processes: int | None
    """The folder /proc."""
    most: int
    """Processes, see `allowed`."""
    folder: str
    """Of the caller, where programs that are not contained get theirs."""


def bind(limits: dict, processes: int) -> None:
    """Sets the limits of this process, which its children inherit.

    Args:
      limits: the fields of `Limits`.
      processes: how many may exist in all, see `allowed`.
    """
    cpu = cpu_seconds(limits)
    _lower("RLIMIT_AS", limits["memory"])
    _lower("RLIMIT_CPU", cpu, cpu + 1)  # a signal that may be caught, then one that may not
    _lower("RLIMIT_FSIZE", limits["file_size"])
    _lower("RLIMIT_NOFILE", limits["open_files"])
    _lower("RLIMIT_NPROC", processes)
    _lower("RLIMIT_STACK", STACK)
    _lower("RLIMIT_MEMLOCK", 0)
    _lower("RLIMIT_MSGQUEUE", 0)
    _lower("RLIMIT_CORE", 0)


def cpu_seconds(limits: dict) -> int:
    """Whole seconds of processor time, for each process."""
    chosen = limits["cpu_seconds"]
    return math.ceil(limits["seconds"]) if chosen is None else chosen


def allowed(limits: dict, contained: bool, workers: int) -> int:
    """The limit on processes that leaves each program its own.

    In a user namespace of its own, Linux from 5.14 on counts only the program's. Elsewhere all
    processes of the user count together.
    """
    own = limits["processes"] + OUR_OWN
    if contained and _release() >= (5, 14):
        return own
    return _running() + own * workers


def resident(processes: int | None, first: int, own: int) -> int:
    """Bytes in memory of a process and all its offspring, beyond what each began with.

    Args:
      processes: the folder /proc.
      first: id of the process.
      own: bytes of one that runs nothing, see `size`.
    """
    total, left = 0, [str(first)]
    while left and processes is not None:
        name = left.pop()
        with contextlib.suppress(OSError):  # it may end at any moment
            total += max(0, size(processes, name) - own)
            left += _children(processes, name)
    return total


def sockets(processes: int | None) -> int:
    """How many this process's network namespace has, closed ones with something unread included;
    0 where the kernel does not tell.
    """
    if processes is None:
        return 0
    try:
        words = _read(processes, "self/net/sockstat").split()
    except OSError:
        return 0
    return int(words[words.index("used") + 1])


def scheduled(processes: int | None, first: int) -> tuple[float, float]:
    """Seconds that a process and its offspring have run, together; and that one of their threads
    has been ready to run and did not, at most. 0 where the kernel does not tell.
    """
    ran, longest, left = 0, 0, [str(first)]
    while left and processes is not None:
        name = left.pop()
        with contextlib.suppress(OSError, ValueError):  # it may end at any moment
            left += _children(processes, name)
            for task in _tasks(processes, name):
                runs, waits, _ = _read(processes, f"{name}/task/{task}/schedstat").split()
                ran, longest = ran + int(runs), max(longest, int(waits))
    return ran / 1e9, longest / 1e9


def size(processes: int | None, name: str = "self") -> int:
    """Bytes in memory of one process."""
    if processes is None:
        return 0
    pages = int(_read(processes, f"{name}/statm").split()[1])
    return pages * resource.getpagesize()


def _tasks(processes: int, name: str) -> list[str]:
    folder = os.open(f"{name}/task", os.O_RDONLY, dir_fd=processes)
    try:
        return os.listdir(folder)
    finally:
        os.close(folder)


def _children(processes: int, name: str) -> list[str]:
    return [
        child
        for task in _tasks(processes, name)
        for child in _read(processes, f"{name}/task/{task}/children").split()
    ]


def _read(processes: int, path: str) -> str:
    file = os.open(path, os.O_RDONLY, dir_fd=processes)
    with os.fdopen(file) as opened:
        return opened.read()


def _release() -> tuple[int, ...]:
    digits = platform.release().replace("-", ".").split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in digits)


def _running() -> int:
    """Threads of the user who programs run as; where that is not known, more than there are."""
    if not os.path.isdir("/proc/self"):
        return MANY
    user, count = os.getuid() or NOBODY, 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it may end at any moment
            if os.stat(f"/proc/{name}").st_uid == user:
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _lower(name: str, soft: int, hard: int | None = None) -> None:
    """Never above what is set already; systems without a limit of that name are left alone."""
    kind = getattr(resource, name, None)
    if kind is None:
        return
    _, most = resource.getrlimit(kind)
    wanted = soft if hard is None else hard
    hard = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(kind, (min(soft, hard), hard))
