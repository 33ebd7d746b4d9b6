"""Converts a checkpoint: lazily read, written part by part, resumable, with a manifest."""

import contextlib
import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from orbax.checkpoint import v1 as orbax

from sake_jax.checks import require
from sake_jax.conversion.checkpoint import (
    Checkpoint,
    copy_description,
    in_dtype,
    leaves,
    open_checkpoint,
    unit_rule,
)
from sake_jax.conversion.manifest import FILE as MANIFEST
from sake_jax.conversion.manifest import JOURNAL, Journal, Manifest, describe
from sake_jax.conversion.rules import Entry, expand
from sake_jax.conversion.source import WEIGHTS
from sake_jax.models import network
from sake_jax.sharding import shard_shape

BATCH = 256 * 2**20
"""Bytes written by one save, unless a single array has more."""
CHUNK = 8 * 2**20
"""Bytes of one stored chunk, the least that is read at once."""
SMALLEST = 2**20
"""Chunks are not cut smaller than this for a mesh."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """One array of the converted checkpoint: a parameter, or one layer of it."""

    name: str
    target: str
    index: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def units(checkpoint: Checkpoint) -> list[Unit]:
    """What will be written, in order."""
    found = leaves(checkpoint.config)
    kinds = {path: np.dtype(leaf.dtype) for path, leaf in checkpoint.weights.leaves.items()}

    def unit(entry: Entry) -> Unit:
        return Unit(entry.source, entry.target, entry.index, entry.shape, kinds[entry.target])

    return [unit(entry) for entry in expand(map(unit_rule, found), found)]


def convert(
    source: str | Path,
    destination: str | Path,
    *,
    dtype: Any = None,
    mesh: Mapping[str, int] | None = None,
    on_unit: Callable[[Unit], None] = lambda unit: None,
) -> Manifest:
    """Writes a Hugging Face folder as a sharded orbax checkpoint.

    A run that was killed goes on where it was: what is written stays. Memory holds one batch
    of arrays, never the model.

    Args:
      source: a folder with config.json and safetensors.
      destination: a new folder, or one that an earlier run left unfinished.
      dtype: "float32", "bfloat16", "float16" or "int8"; as stored by default.
      mesh: sizes of mesh axes, such as {"tensor": 8}. Arrays are then stored in chunks no
        larger than a shard of such a mesh; it can be loaded on any other too.
      on_unit: called after each array, also for those that were there already.
    """
    folder = Path(destination)
    require_free(folder)
    checkpoint = in_dtype(open_checkpoint(Path(source)), dtype)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {
        name: [f.stat().st_size, f.stat().st_mtime_ns]
        for name, f in checkpoint.source.files.items()
    }
    job = {"files": sizes, "dtype": str(dtype), "mesh": dict(mesh or {})}
    journal = Journal(folder / JOURNAL, job)
    with ThreadPoolExecutor(1) as pool:
        # Beside the writing: the pages it reads are those the writing has just read.
        hashes = pool.submit(_hash_files, checkpoint.source.files)
        finish = _nothing
        for batch in _batches(units(checkpoint)):
            fresh = not all(unit.name in journal.done for unit in batch)
            arrays = {unit.name: _read(checkpoint, unit) for unit in batch} if fresh else {}
            finish()  # the batch before this one was written while this one was read
            chunks = _chunks(checkpoint, batch, mesh)
            wait = _save(folder / WEIGHTS, arrays, chunks, journal) if fresh else _nothing
            finish = functools.partial(_report, wait, batch, on_unit)
        finish()
        if not (folder / WEIGHTS).exists():
            orbax.partial.finalize(str((folder / WEIGHTS).resolve()))
        files = hashes.result()
    copy_description(checkpoint, folder)
    manifest = Manifest(
        family=checkpoint.config.family,
        quantized=checkpoint.config.network.quantized,
        prefix=checkpoint.prefix,
        source=files,
        units=journal.done,
        written_by=f"sake-jax {version('sake-jax')}",
    )
    manifest.write(folder)
    journal.path.unlink()
    return manifest


def require_free(folder: Path) -> None:
    """Refuses to write where something else is; an unfinished conversion is no obstacle."""
    there = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
    free = not folder.exists() or not there or (JOURNAL in there and MANIFEST not in there)
    rule = "destination must be a new folder, or one that an unfinished conversion left"
    require(free, rule, f"{folder} with {there[:4]}", "remove it or choose another")


def _batches(wanted: list[Unit]) -> Iterator[list[Unit]]:
    """Runs of units of at most BATCH bytes; always the same runs, so that a resumed run fits."""
    batch: list[Unit] = []
    for unit in wanted:
        if batch and sum(u.nbytes for u in batch) + unit.nbytes > BATCH:
            yield batch
            batch = []
        batch.append(unit)
    yield batch


def _read(checkpoint: Checkpoint, unit: Unit) -> np.ndarray:
    index = tuple(slice(at, at + 1) for at in unit.index)
    return checkpoint.weights.read(unit.target, index).reshape(unit.shape)


def _nothing() -> None:
    pass


def _report(wait: Callable[[], None], batch: list[Unit], on_unit: Callable[[Unit], None]) -> None:
    wait()
    for unit in batch:
        on_unit(unit)


def _save(
    path: Path, arrays: Mapping[str, np.ndarray], chunks: Mapping[str, Any], journal: Journal
) -> Callable[[], None]:
    """Starts to write a batch; call what it returns to wait for the end and record it."""
    context = orbax.Context()
    context.array.saving.use_compression = False  # trained weights do not compress
    context.array.saving.scoped_storage_options_creator = lambda key, value: chunks[key[0].key]
    writing = None
    with context, _perhaps_there():
        writing = orbax.partial.save_async(str(path.resolve()), dict(arrays))
    batch = {name: describe(array) for name, array in arrays.items()}

    def wait() -> None:
        with _perhaps_there():
            if writing is not None:
                writing.result()
        journal.add(batch)

    return wait


@contextlib.contextmanager
def _perhaps_there() -> Iterator[None]:
    """A batch saved just before a kill, and not yet in the journal, is there, whole."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "PartialSaveReplacementError":  # orbax does not export it
            raise


def _chunks(
    checkpoint: Checkpoint, batch: list[Unit], mesh: Mapping[str, int] | None
) -> dict[str, Any]:
    """How finely each array is cut on disk: a chunk is at most a shard, so little is read twice."""
    options = orbax.options.ArrayOptions.Saving.StorageOptions
    axes = network.axes(checkpoint.config.network)

    def size(unit: Unit) -> int:
        names = axes[unit.target][len(unit.index) :]
        part = shard_shape(unit.shape, names, mesh or {})
        return min(CHUNK, max(SMALLEST, math.prod(part) * unit.dtype.itemsize))

    # Not orbax's `shard_axes`: these are cut down to single rows.
    return {unit.name: options(chunk_byte_size=size(unit)) for unit in batch}


def _hash_files(files: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    found = {}
    for name, path in files.items():
        with path.open("rb") as file:
            found[name] = {
                "bytes": path.stat().st_size,
                "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
            }
    return found
