"""Calls to the Linux kernel that Python has no function for."""

import ctypes
import errno
import os
import platform
import signal

NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000
NEW_MOUNT, NEW_IPC, NEW_HOST_NAME = 0x00020000, 0x08000000, 0x04000000
ALL_NEW = NEW_USER | NEW_PID | NEW_NET | NEW_MOUNT | NEW_IPC | NEW_HOST_NAME

READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXECUTION = 1, 2, 4, 8
REMOUNT, BIND, RECURSIVE, PRIVATE = 32, 4096, 16384, 1 << 18
DETACH = 2
SET_ATTRIBUTES, HERE, ALL_BELOW = 442, -100, 0x8000  # mount_setattr, on all machines

PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
"""Of the calls here the only one without a function in libc."""
DEATH_SIGNAL, DUMPABLE, SECCOMP, DROP_CAPABILITY, NO_NEW_PRIVILEGES = 1, 4, 22, 24, 38
CAPABILITIES_VERSION = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Calls a function of libc; an error becomes an OSError that names it."""
    # Whole numbers would be passed as 32 bits, with anything in the upper half.
    passed = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    result = getattr(libc, name)(*passed)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def unshare(namespaces: int) -> None:
    """New namespaces for this process; a new one of process ids is for its children."""
    call("unshare", namespaces)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Attaches a file system, or changes how one is attached."""
    system = kind.encode() if kind else None
    try:
        call("mount", os.fsencode(source), os.fsencode(target), system, flags, options.encode())
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({source} on {target})") from None


def seal_below(folder: str) -> None:
    """Makes everything that is mounted below a folder read-only as well; a remount changes the
    folder's own mount alone."""
    wanted = (ctypes.c_uint64 * 4)(READ_ONLY | NO_SETUID, 0, 0, 0)
    try:
        here, size = ctypes.c_long(HERE), ctypes.sizeof(wanted)
        path = os.fsencode(folder)
        call("syscall", SET_ATTRIBUTES, here, path, ALL_BELOW, ctypes.byref(wanted), size)
    except OSError as error:
        if error.errno != errno.ENOSYS:  # before Linux 5.12
            raise


def pivot_root(folder: str) -> None:
    """Makes a mounted folder the root; the old one is gone, for every child too."""
    os.chdir(folder)
    call("syscall", PIVOT_ROOT[platform.machine()], b".", b".")
    call("umount2", b".", DETACH)
    os.chdir("/")


def die_with_parent() -> None:
    """A kill follows the parent's death. Changes of the user undo this: call it after them."""
    if hasattr(libc, "prctl"):  # not so on other systems, where programs are not contained
        call("prctl", DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def set_dumpable(allowed: bool) -> None:
    """Whether other processes of the same user may look into this one."""
    call("prctl", DUMPABLE, int(allowed), 0, 0, 0)


def drop_capabilities() -> None:
    """None left, and no way to gain any: not by a setuid program either."""
    for number in range(64):
        if libc.prctl(DROP_CAPABILITY, ctypes.c_ulong(number), 0, 0, 0) < 0:
            break  # beyond the last one that this kernel knows
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())
    call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def set_host_name(name: str) -> None:
    """In the host name namespace of this process."""
    call("sethostname", name.encode(), len(name))


def set_filter(instructions: bytes) -> None:
    """A seccomp filter for this process and all its children, for good."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    program = Program(len(instructions) // 8, instructions)
    call("prctl", SECCOMP, 2, ctypes.byref(program), 0, 0)
