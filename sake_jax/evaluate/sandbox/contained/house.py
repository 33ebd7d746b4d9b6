"""The file system that programs see: Python's standard library, nothing of the host's else."""

import os

from . import kernel, libraries

BEDROCK = "/proc"
"""Where the new root is built: a folder that every system has and that holds no file of Python."""
DEVICES = ("/dev/null", "/dev/random", "/dev/urandom")
"""Not /dev/zero: mapped, it is memory that nothing counts."""
EXTRAS = ("/etc/ld.so.cache", "/usr/share/zoneinfo")
"""Where libraries are looked up, and what `zoneinfo` reads."""
THIRD_PARTY = ("site-packages", "dist-packages")
WORK = "/scratch"
"""The only place a program may write to; its own, of limited size, gone with it."""
SEALED = kernel.READ_ONLY | kernel.NO_SETUID


def build(shared: list[str]) -> None:
    """Makes a read-only root of what Python needs and leaves the host's for good."""
    kernel.mount("none", "/", None, kernel.RECURSIVE | kernel.PRIVATE)
    shown = [*libraries.standard_folders(), *shared, *filter(os.path.exists, (*EXTRAS, *DEVICES))]
    kernel.mount("root", BEDROCK, "tmpfs", kernel.NO_SETUID, "mode=755,size=1m")
    for path in dict.fromkeys(shown):
        _show(path)
    for folder in libraries.standard_folders():
        _hide_third_party(folder)
    os.mkdir(BEDROCK + WORK)
    for name in ("/tmp", "/dev/shm"):  # the latter for semaphores of multiprocessing
        if not os.path.exists(BEDROCK + name):  # an interpreter may live in /tmp
            os.symlink(WORK, BEDROCK + name)
    kernel.mount("none", BEDROCK, None, kernel.REMOUNT | kernel.BIND | SEALED)
    kernel.pivot_root(BEDROCK)


def furnish(bytes_of_disk: int) -> None:
    """An empty working folder in memory, for one program."""
    flags = kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_EXECUTION
    options = f"mode=700,size={bytes_of_disk},nr_inodes=4096"
    kernel.mount("work", WORK, "tmpfs", flags, options)
    os.chdir(WORK)


def _show(path: str) -> None:
    """The same file or folder at the same place under the new root, read-only."""
    target = BEDROCK + path
    os.makedirs(target if os.path.isdir(path) else os.path.dirname(target), exist_ok=True)
    if not os.path.isdir(path):
        open(target, "w").close()
    _bind(path, target)


def _hide_third_party(folder: str) -> None:
    empty = f"{BEDROCK}/empty"
    os.makedirs(empty, exist_ok=True)
    for name in THIRD_PARTY:
        if os.path.isdir(os.path.join(folder, name)):
            _bind(empty, f"{BEDROCK}{folder}/{name}")


def _bind(path: str, target: str) -> None:
    kernel.mount(path, target, None, kernel.BIND | kernel.RECURSIVE)
    sealed = SEALED if path in DEVICES else SEALED | kernel.NO_DEVICES
    # What the host forbids for a mount must stay forbidden, or the kernel refuses.
    sealed |= os.statvfs(target).f_flag & (kernel.NO_DEVICES | kernel.NO_EXECUTION)
    kernel.mount("none", target, None, kernel.REMOUNT | kernel.BIND | sealed)
    kernel.seal_below(target)
