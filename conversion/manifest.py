"""What a converted checkpoint says about itself: where it came from, and a hash of every part."""

import dataclasses
import hashlib
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from sake_jax.checks import require
from sake_jax.files import write_atomically
from sake_jax.journal import JsonLines

FILE = "manifest.json"
JOURNAL = "journal.jsonl"
FORMAT = 1
STORED = ("float64", "float32", "float16", "bfloat16", "int8")
"""What arrays of a converted checkpoint may be."""
FINALIZING = {"finalizing": True}
"""The journal's last line."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Written last: a folder that has one is complete."""

    family: str
    quantized: bool
    prefix: str
    """What the names of the source's tensors began with."""
    source: dict[str, dict[str, Any]]
    """Bytes and sha256 of every file the weights came from; no sha256 where several processes
    converted them, as none of these reads a whole file."""
    units: dict[str, dict[str, Any]]
    """Shape, dtype and sha256 of every array, layers apart."""
    written_by: str
    format: int = FORMAT

    @staticmethod
    def beside(folder: Path) -> bool:
        """Whether a folder is a converted checkpoint; half of one is an error."""
        complete = (folder / FILE).is_file()
        rule, remedy = "the conversion must be finished", "run `sake-jax convert` again: it goes on"
        require(complete or not (folder / JOURNAL).is_file(), rule, str(folder), remedy)
        return complete

    @staticmethod
    def read(folder: Path) -> "Manifest":
        """The manifest of a folder, which must be one of ours and whole."""
        try:
            stored = json.loads((folder / FILE).read_text())
            rule = f"{FILE} must have format {FORMAT}"
            remedy = "convert the checkpoint again with this version"
            require(stored.get("format") == FORMAT, rule, stored.get("format"), remedy)
            manifest = Manifest(**stored)
            wrong = [name for name, unit in manifest.units.items() if not _is_unit(unit)]
            rule = f"{FILE} must say shape, dtype and sha256 of every array"
            require(not wrong, rule, wrong[:3], "convert the checkpoint again")
            return manifest
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            remedy = "convert the checkpoint again"
            raise ValueError(f"{folder / FILE} must be JSON, got {error}; {remedy}.") from error
        except (TypeError, AttributeError) as error:
            remedy = "convert the checkpoint again"
            raise ValueError(f"{folder / FILE} is damaged ({error}); {remedy}.") from error

    def write(self, folder: Path) -> None:
        """Into a folder, in one go: a file cut short would pass for a complete conversion."""
        write_atomically(folder / FILE, json.dumps(dataclasses.asdict(self), indent=1))


def _is_unit(unit: Any) -> bool:
    """Whether it is what `describe` gives."""
    if not isinstance(unit, dict) or unit.keys() != {"shape", "dtype", "sha256"}:
        return False
    sizes = unit["shape"] if isinstance(unit["shape"], list) else [None]
    whole = all(isinstance(size, int) and size >= 0 for size in sizes)
    return whole and unit["dtype"] in STORED and isinstance(unit["sha256"], str)


class UnfinishedConversion:
    """What a conversion has written so far: its job, one line for every batch of arrays, and a mark
    when they are put together."""

    def __init__(self, path: Path, job: dict[str, Any]):
        """`job` says what is converted and how; a journal of another job is refused."""
        self.file = JsonLines(path)
        self.done: dict[str, dict[str, Any]] = {}
        self.finalizing = False
        lines = self.file.read()
        if not lines:  # new, or killed while beginning it
            self.file.append([job])
            return
        rule = f"{path.parent} holds an unfinished conversion, which must be the same one"
        remedy = "remove the folder to start again"
        require(lines[0] == job, rule, job, remedy)
        for line in lines[1:]:
            if line == FINALIZING:
                self.finalizing = True
            else:
                self.done |= line

    def add(self, batch: dict[str, dict[str, Any]]) -> None:
        """Records a batch that is safely on disk, each array as `describe` has it."""
        self.done |= batch
        self.file.append([batch])

    def mark_finalizing(self) -> None:
        """Records that orbax begins to merge what was written: cut short, it cannot go on."""
        self.file.append([FINALIZING])

    def restart(self) -> None:
        """Forgets all that was written."""
        self.file.keep(1)
        self.done, self.finalizing = {}, False


class FileHashes:
    """Hashes files beside other work: the pages it reads are those that work has just read."""

    def __init__(self, files: Mapping[str, Path]):
        self._files, self._given_up = files, threading.Event()

    def __enter__(self) -> "FileHashes":
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(self._all)
        return self

    def __exit__(self, kind: Any, *details: Any) -> None:
        if kind is not None:
            self._given_up.set()  # nobody waits for gigabytes after an error
        self._pool.shutdown()

    def result(self) -> dict[str, dict[str, Any]]:
        """Bytes and sha256 of every file."""
        return self._future.result()

    def _all(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"bytes": path.stat().st_size, "sha256": self._one(path)}
            for name, path in self._files.items()
        }

    def _one(self, path: Path) -> str:
        hashed = hashlib.sha256()
        with path.open("rb") as file:
            while (block := file.read(2**22)) and not self._given_up.is_set():
                hashed.update(block)
        return hashed.hexdigest()


def describe(array: np.ndarray) -> dict[str, Any]:
    """What the manifest says about an array."""
    return {"shape": list(array.shape), "dtype": array.dtype.name, "sha256": digest(array)}


def digest(array: np.ndarray) -> str:
    """sha256 of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()
