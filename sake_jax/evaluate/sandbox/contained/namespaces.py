"""Which namespaces, user and rights the server, a keeper and a program have."""

import os
import platform
import sys

from . import house, kernel, refusals
from .ceilings import NOBODY

USER = 1000
"""Who a program believes to be."""


def open_processes() -> int | None:
    """The folder /proc, which is out of sight later; None where there is none."""
    folder = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
    return os.open("/proc", folder) if os.path.isdir("/proc/self") else None


def settle(processes: int | None, shared: list[str]) -> None:
    """The server: away from the host's files, and able to make namespaces inside its own."""
    known = sys.platform == "linux" and platform.machine() in refusals.ARCHITECTURES
    if not known:
        raise OSError(f"not known for {platform.machine()} under {sys.platform}")
    if processes is None:
        raise OSError("there is no /proc")
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        kernel.unshare(kernel.NEW_MOUNT)
    else:
        kernel.unshare(kernel.NEW_USER | kernel.NEW_MOUNT)
        _map(processes, user, user, group, group)
    house.build(shared)


def separate(processes: int, bytes_of_disk: int) -> None:
    """A keeper: namespaces of its program's own. Its next child is their first process."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        kernel.set_dumpable(True)  # or /proc/self would still be root's
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(kernel.ALL_NEW)
    _map(processes, USER, user, USER, group)
    kernel.set_host_name("program")
    house.furnish(bytes_of_disk)


def confine() -> None:
    """The first process of the namespaces, and with it the program: no rights at all."""
    kernel.drop_capabilities()
    kernel.set_dumpable(False)
    kernel.set_filter(refusals.instructions())
    kernel.die_with_parent()


def _map(processes: int, inner_user: int, user: int, inner_group: int, group: int) -> None:
    """One user and one group exist inside; they are this process's own outside."""
    _write(processes, "self/setgroups", "deny")
    _write(processes, "self/uid_map", f"{inner_user} {user} 1")
    _write(processes, "self/gid_map", f"{inner_group} {group} 1")


def _write(processes: int, path: str, text: str) -> None:
    try:
        file = os.open(path, os.O_WRONLY, dir_fd=processes)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)
    except OSError as error:
        raise OSError(error.errno, f"{path}: {error.strerror}") from None
