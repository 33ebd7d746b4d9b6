"""Converts a checkpoint: lazily read, written part by part, resumable, with a manifest."""

import contextlib
import functools
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sake_jax.checks import require
from sake_jax.conversion.checkpoint import Checkpoint, copy_description, in_dtype, open_checkpoint
from sake_jax.conversion.manifest import FILE as MANIFEST
from sake_jax.conversion.manifest import (
    JOURNAL,
    FileHashes,
    Manifest,
    UnfinishedConversion,
    describe,
)
from sake_jax.conversion.source import WEIGHTS, CheckpointError, Orbax
from sake_jax.conversion.units import Unit, batches, list_units, part_of_each, whole
from sake_jax.files import WriterLock, lock
from sake_jax.models import network
from sake_jax.sharding import (
    RULES,
    broadcast_from_leader,
    gather_from_all,
    is_leader,
    several_processes,
    shard_shape,
    to_host,
)

CHUNK = 8 * 2**20
"""Bytes of one stored chunk, the least that is read at once."""
PIECES = 32
"""Larger arrays are cut into this many: smaller pieces would be copied before they are written."""
SMALLEST = 2**20
"""Chunks are not cut smaller than this for a mesh."""
ATTEMPTS = 2
"""How often all is written, if it cannot be read back: an earlier run may have left a part."""


def convert(
    source: str | Path,
    destination: str | Path,
    *,
    dtype: Any = None,
    mesh: Mapping[str, int] | None = None,
    on_unit: Callable[[Unit], None] = lambda unit: None,
) -> Manifest:
    """Writes a checkpoint as a chunked orbax checkpoint, for sharded loading.

    A run that was killed goes on where it was: what is written stays. Memory holds two batches
    of arrays, never the model. In a run of several processes (`sake_jax.sharding`) all must
    call this; each reads and writes a part of every array, in a folder that they all see.

    >>> import tempfile
    >>> from sake_jax.conversion import convert, load, locate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     manifest = convert(locate("tinystories"), folder, dtype="bfloat16")
    ...     load(folder).params["norm"]["weight"].dtype.name
    'bfloat16'

    Args:
      source: a folder with config.json and safetensors, or a GGUF file.
      destination: a new folder, or one that an earlier run left unfinished.
      dtype: "float32", "bfloat16", "float16" or "int8"; as stored by default.
      mesh: sizes of mesh axes, such as {"tensor": 8}. Arrays are then stored in chunks no
        larger than a shard of such a mesh; it can be loaded on any other too.
      on_unit: called after each array, also for those that were there already.
    """
    folder = Path(destination)
    broadcast_from_leader(lambda: require_free(folder))
    checkpoint = in_dtype(open_checkpoint(Path(source)), dtype)
    with _only_writer(folder):
        for _ in range(ATTEMPTS):
            manifest, damaged = _attempt(checkpoint, folder, mesh, on_unit)
            if manifest is not None:
                return manifest
    remedy = "check the disk, and run it again: it begins anew"
    raise CheckpointError(f"what was written cannot be read back ({damaged[:3]}); {remedy}.")


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Process 0 locks the folder for all of them."""
    held: list[WriterLock] = []

    def begin() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        held.append(lock(folder))
        require_free(folder)  # another one may have finished since we looked

    broadcast_from_leader(begin)
    try:
        yield
    finally:
        for each in held:
            each.release()


def _attempt(
    checkpoint: Checkpoint,
    folder: Path,
    mesh: Mapping[str, int] | None,
    on_unit: Callable[[Unit], None],
) -> tuple[Manifest | None, list[str]]:
    """Writes what is not there yet; no manifest, and the reason, if it cannot be read back."""
    runs = list(batches(list_units(checkpoint)))
    journal = broadcast_from_leader(lambda: _begin(folder, _job(checkpoint, runs, mesh)))
    _require_shared(folder, checkpoint)
    if broadcast_from_leader((folder / MANIFEST).is_file):  # killed when only the journal had to go
        return broadcast_from_leader(lambda: _forget(folder, journal)), []
    files = _write_batches(checkpoint, folder, runs, mesh, on_unit, journal)
    if not broadcast_from_leader((folder / WEIGHTS).exists):
        broadcast_from_leader(journal.mark_finalizing)
        _orbax().partial.finalize(str((folder / WEIGHTS).resolve()))
    damaged = _damaged(folder, broadcast_from_leader(lambda: journal.done))
    if damaged:
        broadcast_from_leader(lambda: _start_again(folder, journal))
        return None, damaged
    return broadcast_from_leader(lambda: _end(checkpoint, folder, files, journal)), []


def _write_batches(
    checkpoint: Checkpoint,
    folder: Path,
    runs: list[list[Unit]],
    mesh: Mapping[str, int] | None,
    on_unit: Callable[[Unit], None],
    journal: UnfinishedConversion,
) -> dict[str, Any]:
    """All batches that the journal has not; returns what the manifest says about the source."""
    with FileHashes({} if several_processes() else checkpoint.source.files) as hashes:
        finish = _nothing
        for batch in runs:
            # A batch is in the journal whole or not at all; a cut one is written again.
            fresh = not all(unit.name in journal.done for unit in batch)
            arrays = {u.name: _read(checkpoint, u, mesh) for u in batch} if fresh else {}
            finish()  # the batch before this one was written while this one was read
            chunks = _chunks(checkpoint, batch, mesh)
            wait = _save(folder / WEIGHTS, arrays, chunks, journal) if fresh else _nothing
            finish = functools.partial(_report, wait, batch, on_unit)
            if several_processes():
                # orbax's thread and this one must not speak to the other processes at once.
                finish()
                finish = _nothing
        finish()
        sizes = {n: {"bytes": path.stat().st_size} for n, path in checkpoint.source.files.items()}
        return hashes.result() or sizes


def _damaged(folder: Path, units: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names of arrays that do not come back as they were written; each process reads some."""
    source = Orbax(folder, units)
    names = sorted(units)[jax.process_index() :: jax.process_count()]

    def is_whole(name: str) -> bool:
        try:
            return describe(source.read(name, ())) == units[name]
        except (ValueError, OSError, RuntimeError):  # its files are missing, or cut short
            return False

    with ThreadPoolExecutor(2) as pool:  # memory held two batches before, now two arrays
        wrong = [
            name for name, right in zip(names, pool.map(is_whole, names), strict=True) if not right
        ]
    return [name for part in gather_from_all(wrong) for name in part]


def _read(checkpoint: Checkpoint, unit: Unit, mesh: Mapping[str, int] | None) -> Any:
    """A unit; of several processes, each reads a part of it, as devices will."""
    if not several_processes():
        return whole(checkpoint.weights, unit)
    names = network.param_axes(checkpoint.config.network)[unit.target][len(unit.index) :]
    split = [RULES.get(name or "") in (mesh or ("tensor",)) for name in names]
    return part_of_each(checkpoint.weights, unit, np.flatnonzero(split).tolist())


def _begin(folder: Path, job: dict[str, Any]) -> UnfinishedConversion:
    journal = UnfinishedConversion(folder / JOURNAL, job)
    if journal.finalizing and not (folder / WEIGHTS).exists():
        # Of what orbax has merged so far nobody knows how much: what it merges next is not all.
        _start_again(folder, journal)
    return journal


def _start_again(folder: Path, journal: UnfinishedConversion) -> None:
    """Takes away what was written; the journal last, which then knows of nothing."""
    for path in folder.glob(f"{WEIGHTS}*"):
        shutil.rmtree(path)
    journal.restart()


def _end(
    checkpoint: Checkpoint, folder: Path, files: dict[str, Any], journal: UnfinishedConversion
) -> Manifest:
    copy_description(checkpoint, folder)
    # orbax leaves its own folder behind when it refuses a batch that a killed run had saved.
    for path in folder.glob(f"{WEIGHTS}.*"):
        shutil.rmtree(path)
    # The manifest last, since a folder with one counts as complete; then the journal may go.
    manifest = Manifest(
        family=checkpoint.config.family,
        quantized=checkpoint.config.network.quantized,
        prefix=checkpoint.prefix,
        source=files,
        units=journal.done,
        written_by=f"sake-jax {version('sake-jax')}",
    )
    manifest.write(folder)
    return _forget(folder, journal)


def _forget(folder: Path, journal: UnfinishedConversion) -> Manifest:
    """Takes the journal of a finished conversion away."""
    journal.file.path.unlink()
    return Manifest.read(folder)


def _require_shared(folder: Path, checkpoint: Checkpoint) -> None:
    """Refuses what several processes cannot convert together."""
    if not several_processes():
        return
    blind = [
        at for at, sees in enumerate(gather_from_all((folder / JOURNAL).is_file())) if not sees
    ]
    rule = "all processes must see the destination, a folder that they share"
    require(not blind, rule, f"no {folder} in processes {blind}", "put it on a shared disk")
    double = [p for p, leaf in checkpoint.weights.leaves.items() if leaf.dtype == np.float64]
    rule = "several processes convert what a device can hold"
    require(not double, rule, f"float64 in {double[:3]}", "pass dtype='float32'")


def require_free(folder: Path) -> None:
    """Refuses a folder for a conversion where something else is; an unfinished one may go on.

    >>> from pathlib import Path
    >>> from sake_jax.conversion import require_free
    >>> require_free(Path("a new folder"))
    """
    files = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
    free = not folder.exists() or not files or JOURNAL in files
    rule = "destination must be a new folder, or one that an unfinished conversion left"
    require(free, rule, f"{folder} with {files[:4]}", "remove it or choose another")


def _job(
    checkpoint: Checkpoint, runs: list[list[Unit]], mesh: Mapping[str, int] | None
) -> dict[str, Any]:
    """What a resumed run must have in common with the one it continues."""
    stats = {name: file.stat() for name, file in checkpoint.source.files.items()}
    return {
        "files": {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()},
        "converted_from": checkpoint.manifest.units if checkpoint.manifest else None,
        "batches": [[[u.name, list(u.shape), u.dtype.name] for u in batch] for batch in runs],
        "mesh": dict(mesh or {}),
    }


def _nothing() -> None:
    pass


def _report(wait: Callable[[], None], batch: list[Unit], on_unit: Callable[[Unit], None]) -> None:
    wait()
    for unit in batch:
        on_unit(unit)


def _orbax() -> Any:
    """Loaded when something is written: `load` and the commands' help need none of it."""
    from orbax.checkpoint import v1

    return v1


def _save(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    chunks: Mapping[str, Any],
    journal: UnfinishedConversion,
) -> Callable[[], None]:
    """Starts to write a batch; call what it returns to wait for the end and record it."""
    orbax = _orbax()
    context = orbax.Context()
    context.array.saving.use_compression = False  # trained weights do not compress
    context.array.saving.scoped_storage_options_creator = lambda key, value: chunks[key[0].key]
    context.memory.deepcopy_host_arrays = False  # nobody changes them
    writing = None
    held = {name: to_host(array) for name, array in arrays.items()}
    with context, _accept_already_saved():
        writing = orbax.partial.save_async(str(path.resolve()), dict(arrays))
    batch = {name: describe(array) for name, array in held.items()} if is_leader() else {}

    def wait() -> None:
        with _accept_already_saved():
            if writing is not None:
                writing.result()
        if is_leader():
            journal.add(batch)

    return wait


@contextlib.contextmanager
def _accept_already_saved() -> Iterator[None]:
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
    options = _orbax().options.ArrayOptions.Saving.StorageOptions
    axes = network.param_axes(checkpoint.config.network)

    def size(unit: Unit) -> int:
        names = axes[unit.target][len(unit.index) :]
        shard = math.prod(shard_shape(unit.shape, names, mesh or {})) * unit.dtype.itemsize
        return min(max(CHUNK, unit.nbytes // PIECES), max(SMALLEST, shard))

    # Not orbax's `shard_axes`: these are cut down to single rows.
    return {unit.name: options(chunk_byte_size=size(unit)) for unit in batch}
