"""Disks that are full, and folders that another process writes to."""

import contextlib
import fcntl
import os
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def little_room(size: int) -> Iterator[None]:
    """No file can grow beyond so many bytes; the write that would is cut short and then fails, as
    on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def written_by_another(path: Path) -> Iterator[None]:
    """As if another process held the lock; raises if this one does."""
    opened = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)
