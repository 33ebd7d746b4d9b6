"""A folder that an interrupted run goes on in: its settings, and a line for all it has finished."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sake_jax.files import lock, sync_folder, write_all, write_atomically

Line = dict[str, Any]
UNIMPORTANT = ("versions", "options.batch")
"""Settings that may change from one part of a run to the next: its texts do not depend on them."""


class JsonLines:
    """A file of JSON lines whose writer may be killed at any moment.

    >>> import tempfile
    >>> file = JsonLines(Path(tempfile.mkdtemp()) / "rows.jsonl")
    >>> file.append([{"row": 1}, {"row": 2}])
    >>> file.read()
    [{'row': 1}, {'row': 2}]
    """

    def __init__(self, path: Path):
        self.path = path

    def read(self) -> list[Line]:
        """All whole lines; none without a file. A line that was cut short does not count."""
        return read_lines(self.path) if self.path.exists() else []

    def append(self, lines: Iterable[Line]) -> None:
        """Adds lines in one write, and returns when they are on the disk.

        All of them or, on an error such as a full disk, none.
        """
        text = "".join(json.dumps(line) + "\n" for line in lines)
        new = not self.path.exists()
        with self.path.open("ab", buffering=0) as file:
            whole = _whole_bytes(self.path)
            # Behind a line that was cut short the next one would be lost with it.
            file.truncate(whole)
            try:
                write_all(file, text.encode())
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(whole)
                raise
        if new:
            sync_folder(self.path.parent)

    def keep(self, count: int) -> None:
        """Takes all lines away but the first ones, at once: a kill leaves all of them or these."""
        if self.path.exists():
            with self.path.open("r+b") as file:
                for _ in range(count):
                    file.readline()
                file.truncate(file.tell())
                os.fsync(file.fileno())


class Journal:
    """settings.json, and a file of JSON lines.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> Journal(folder, {"seed": 0}).append([{"row": 1}])
    >>> Journal(folder, {"seed": 0}).lines()
    [{'row': 1}]
    """

    def __init__(self, folder: str | Path, settings: Line, name: str = "rows.jsonl"):
        """Begins a folder, or goes on with one that has the same settings.

        Another process that writes to the same file of lines is an error, until this object is
        gone. Files of one run, such as those of its shards, begin with the same word.
        """
        self.folder = Path(folder)
        self.path = self.folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        with lock(self.folder, wait=True):  # shards may begin at the same moment
            self._claim(settings)
            self._lock = lock(self.path)

    def _claim(self, settings: Line) -> None:
        written, mine = self.folder / "settings.json", json.dumps(settings, indent=1)
        rule = f"{self.folder} must be new or hold a run with the same settings"
        remedy = "choose another folder, or repeat that run"
        if written.exists():
            changed = differences(_read_settings(written), json.loads(mine))
            if changed:
                raise ValueError(f"{rule}, got other {', '.join(changed[:5])}; {remedy}.")
            return
        begins = self.path.name.partition(".")[0].partition("-")[0]
        rows = [path.name for path in self.folder.glob(f"{begins}*.jsonl") if path.stat().st_size]
        # Nobody knows of which seed they are.
        rest = "without settings.json; bring that back, or choose another folder"
        if rows:
            raise ValueError(f"{rule}, got {', '.join(sorted(rows)[:5])} {rest}.")
        write_atomically(written, mine)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *details: Any) -> None:
        """Lets other processes write here."""
        self._lock.release()

    def lines(self) -> list[Line]:
        """What was finished."""
        return JsonLines(self.path).read()

    def append(self, lines: Iterable[Line]) -> None:
        """Adds what is finished."""
        JsonLines(self.path).append(lines)


def _read_settings(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        remedy = "bring back the one that was written, or choose another folder"
        raise ValueError(f"{path} must be JSON, got {error}; {remedy}.") from error


def _whole_bytes(path: Path) -> int:
    """The size of a file without a last line that was cut short."""
    step = 2**16
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - step)
            file.seek(start)
            last = file.read(end - start).rfind(b"\n")
            if last >= 0:
                return start + last + 1
            end = start
    return 0


def read_lines(path: Path) -> list[Line]:
    """All whole lines of a file of JSON lines; another run may be adding to it."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]
    return [_line(path, number, line) for number, line in enumerate(whole, 1)]


def _line(path: Path, number: int, line: bytes) -> Line:
    try:
        return json.loads(line)
    except ValueError as error:
        raise wrong_line(path, number, error) from error


def wrong_line(path: Path, number: int, error: Exception) -> ValueError:
    """What is said of a line that is not ours."""
    rule = f"line {number} of {path} must be a row of ours"
    return ValueError(f"{rule}, got {error}; take it out: it is made again.")


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """Where two trees of JSON differ in what matters."""
    if name in UNIMPORTANT or before == now:
        return []
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(before.keys() | now.keys())
        parts = [differences(before.get(k), now.get(k), f"{name}.{k}".strip(".")) for k in keys]
        return [name for names in parts for name in names]
    return [name]
