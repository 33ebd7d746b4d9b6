"""Files that survive a kill: replaced whole or not at all, and one writer at a time.

A process may end at any moment: killed, out of disk, out of power. Whatever it was doing, a reader
then sees the old file or the new one, never a part; and a folder has one writer, so that two runs
never mix.
"""

import contextlib
import os
import shutil
import stat
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows: there are no such locks, and nothing is refused
    fcntl = None

PARTIAL = ".partial"
"""What the names of files and folders end with while they are written."""
TWO_WRITERS = (
    "{} must have one writer at a time, got another process that writes there; wait for it, or "
    "choose another folder."
)
WAIT = 60.0
"""Seconds to wait for another process that writes a file: such a write takes no longer."""


def write_atomically(path: str | Path, content: str | bytes) -> Path:
    """Makes a file, or replaces one: readers see all of the old content or all of the new.

    Returns when the content is on the disk, under its name. Of two writers at once the last wins.

    >>> import tempfile
    >>> path = write_atomically(Path(tempfile.mkdtemp()) / "table.md", "| a |")
    >>> path.read_text(), [file.name for file in path.parent.iterdir()]
    ('| a |', ['table.md'])
    """
    # A link keeps its place: what it points to is replaced.
    path, given = Path(os.path.realpath(path)), Path(path)
    partial = path.with_name(path.name + PARTIAL)
    with _own(partial) as file:
        try:
            write_all(file, content.encode() if isinstance(content, str) else content)
            _keep_mode(file, path)
            os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:  # such as a full disk: what is half written helps nobody
            partial.unlink(missing_ok=True)
            raise
    sync_folder(path.parent)
    return given


def write_all(file: Any, content: bytes) -> None:
    """Writes to a file without a buffer, which may take less than it is given."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


@contextlib.contextmanager
def _own(partial: Path) -> Iterator[BinaryIO]:
    """The empty partial file, opened by nobody else: a second writer waits here for the first."""
    while True:
        with partial.open("ab", buffering=0) as file:
            if not _flock(file.fileno(), WAIT):
                raise ValueError(TWO_WRITERS.format(partial))
            if _is_at(file, partial):
                file.truncate(0)
                yield file
                return
        # The writer before us has renamed the file that we waited for: again, with a new one.


def _is_at(file: Any, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _keep_mode(file: Any, path: Path) -> None:
    """Who may read a file does not change when it is replaced."""
    if path.exists() and hasattr(os, "fchmod"):
        os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))


def sync_folder(folder: Path) -> None:
    """Returns when the names in a folder are on the disk."""
    if os.name == "nt":  # folders cannot be opened there
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError:  # some network disks do not offer it
        pass
    finally:
        os.close(opened)


def replace_folder(new: Path, folder: Path) -> None:
    """Puts a finished folder into the place of another, which is then gone.

    A kill leaves the old one or the new one in its place; at worst, between two renames, neither,
    and both beside it.
    """
    for path in sorted(new.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(new)
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


class WriterLock:
    """Says that this process is the one that writes to a folder or a file.

    It lasts as long as this object, and no longer than the process, however that ends.
    """

    def __init__(self, place: tuple[int, int]):
        self._released = weakref.finalize(self, _release, place)

    def release(self) -> None:
        """Lets others write, before this object is gone."""
        self._released()

    def __enter__(self) -> "WriterLock":
        return self

    def __exit__(self, *details: Any) -> None:
        self.release()


_Place = tuple[int, int]
"""A device, and a file's or folder's number on it."""
_held: dict[_Place, list[int]] = {}
"""The descriptor that holds a lock, and how many objects share it."""
_guard = threading.RLock()


def lock(path: str | Path, wait: bool = False) -> WriterLock:
    """Makes this process the only one that writes to a folder, or to a file; raises if another is.

    A process does not exclude itself: what it locks twice is free when both locks are gone.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with lock(folder):
    ...     print("nobody else writes here")
    nobody else writes here

    Args:
      path: a folder that exists, or a file, which is made if there is none.
      wait: some seconds for the other process to be done, before raising.
    """
    path = Path(path)
    way = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    with _guard:
        opened = os.open(path, way, 0o666)
        about = os.fstat(opened)
        place = about.st_dev, about.st_ino
        if place in _held:
            os.close(opened)
        elif _flock(opened, WAIT if wait else 0):
            _held[place] = [opened, 0]
        else:
            os.close(opened)
            raise ValueError(TWO_WRITERS.format(path))
        _held[place][1] += 1
    return WriterLock(place)


def _release(place: _Place) -> None:
    with _guard:
        held = _held[place]
        held[1] -= 1
        if not held[1]:
            del _held[place]
            os.close(held[0])


def _flock(opened: int, wait: float) -> bool:
    """Whether the lock of an opened file is ours; also where the disk has no locks to give."""
    until = time.monotonic() + wait
    while fcntl is not None:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        except OSError:  # some network disks: then two writers are not noticed
            return True
        else:
            return True
    return True
