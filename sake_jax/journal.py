"""A folder that an interrupted run goes on in: its settings, and a line for all it has finished."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
        """All whole lines; none without a file. A line that was cut short is taken away."""
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            # Else the next line would be written behind it, and both would be lost.
            with self.path.open("r+b") as file:
                file.truncate(whole)
        return read_lines(self.path)

    def append(self, lines: Iterable[Line]) -> None:
        """Adds lines in one write, and returns when they are on the disk."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        with self.path.open("ab") as file:
            file.write(text.encode())
            file.flush()
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
        """Begins a folder, or goes on with one that has the same settings."""
        self.folder = Path(folder)
        self.path = self.folder / name
        written, mine = self.folder / "settings.json", json.dumps(settings, indent=1)
        if written.exists():
            changed = differences(json.loads(written.read_text()), json.loads(mine))
            if changed:
                raise ValueError(
                    f"{folder} must be new or hold a run with the same settings, got other "
                    f"{', '.join(changed[:5])}; choose another folder, or repeat that run."
                )
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = written.with_suffix(".partial")
        partial.write_text(mine)
        partial.replace(written)

    def lines(self) -> list[Line]:
        """What was finished."""
        return JsonLines(self.path).read()

    def append(self, lines: Iterable[Line]) -> None:
        """Adds what is finished."""
        JsonLines(self.path).append(lines)


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
