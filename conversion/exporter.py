"""Writes a model back as a Hugging Face folder, so that others can load it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from sake_jax.checks import one_of, require
from sake_jax.conversion import families
from sake_jax.conversion.checkpoint import copy_description, leaves, open_checkpoint
from sake_jax.conversion.rules import Entry, expand
from sake_jax.conversion.source import CONFIG, INDEX_FILE
from sake_jax.conversion.units import part
from sake_jax.conversion.weights import Held, Weights
from sake_jax.files import PARTIAL, lock, replace_folder, write_atomically
from sake_jax.models import ModelConfig, network
from sake_jax.typing import Params

SAVED_DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
"""What `save` writes weights as, by name."""
SHARD = 2 * 2**30
"""Bytes of one safetensors file, unless a single tensor has more."""


def export(source: str | Path, destination: str | Path, *, shard_bytes: int = SHARD) -> list[Path]:
    """Writes a checkpoint in the layout its family has on the hub; returns the weight files.

    Tensors come out bit for bit as they went in. Memory holds one file's tensors. The folder
    appears when all is written: a run that was killed can be started again.

    >>> import tempfile
    >>> from sake_jax.conversion import export, locate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file.name for file in export(locate("tinystories"), folder)]
    ['model.safetensors']
    """
    checkpoint, folder = open_checkpoint(Path(source)), Path(destination)
    _require_empty(folder)
    partial = folder.with_name(folder.name + PARTIAL)
    partial.mkdir(parents=True, exist_ok=True)
    with lock(partial):
        for left in partial.iterdir():  # by a run that was killed
            left.unlink()
        try:
            config, weights = checkpoint.config, checkpoint.weights
            files = write(config, weights, checkpoint.prefix, partial, shard_bytes=shard_bytes)
            copy_description(checkpoint, partial)
            replace_folder(partial, folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return [folder / file.name for file in files]


def save(
    config: ModelConfig, params: Params, folder: str | Path, dtype: str = "float32"
) -> list[Path]:
    """Writes a model that is in memory as its family has it on the hub; returns the weight files.

    config.json and the weights; a tokenizer is the caller's to add.

    >>> import tempfile
    >>> import sake_jax as sj
    >>> from sake_jax.conversion import save
    >>> lm = sj.load("tinystories")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = save(lm.config, lm.params, folder)
    ...     sj.load(folder).config == lm.config
    True

    Args:
      config: the model's.
      params: its parameters.
      folder: a new or empty one.
      dtype: "float32", "float16" or "bfloat16"; rotary frequencies and the like stay as they are.
    """
    kind = SAVED_DTYPES[one_of("dtype", dtype, SAVED_DTYPES)]
    family, exact = families.family(config.family), network.exact_params(config.network)
    leaves = jax.device_get(network.flatten_params(params))
    cast = {path: leaf if path in exact else leaf.astype(kind) for path, leaf in leaves.items()}
    files = write(config, Held(cast), max(family.prefixes, key=len), Path(folder))
    described = family.describe(config) | {"torch_dtype": dtype}
    write_atomically(Path(folder) / CONFIG, json.dumps(described, indent=1))
    return files


def write(
    config: ModelConfig,
    weights: Weights,
    prefix: str,
    folder: Path,
    *,
    shard_bytes: int = SHARD,
) -> list[Path]:
    """The weights alone, under their family's names, into a new folder; returns their files."""
    rule, remedy = "only float weights have a place in the family's layout", "convert without int8"
    require(not config.network.quantized, rule, "int8 weights", remedy)
    _require_empty(folder)
    folder.mkdir(parents=True, exist_ok=True)
    entries = expand(families.family(config.family).table(config, prefix), leaves(config))
    shards = list(_shards(weights, entries, shard_bytes))
    names = [_file_name(at, len(shards)) for at in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        tensors = {entry.source: _tensor(weights, entry) for entry in shard}
        _save(tensors, folder / name)
    if len(shards) > 1:
        files_of = {
            e.source: name for name, shard in zip(names, shards, strict=True) for e in shard
        }
        total = sum(_nbytes(weights, entry) for entry in entries)
        index = {"metadata": {"total_size": total}, "weight_map": files_of}
        write_atomically(folder / INDEX_FILE, json.dumps(index, indent=1))
    return [folder / name for name in names]


def _require_empty(folder: Path) -> None:
    rule, remedy = "destination must be a new or empty folder", "choose another"
    require(not folder.is_dir() or not any(folder.iterdir()), rule, str(folder), remedy)


def _save(tensors: dict[str, np.ndarray], path: Path) -> None:
    """A safetensors file that the same people may read as any other file of the user."""
    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, path, metadata={"format": "pt"})  # on its own for the owner alone
    path.chmod(mode)


def _file_name(at: int, count: int) -> str:
    if count == 1:
        return "model.safetensors"
    return f"model-{at + 1:05d}-of-{count:05d}.safetensors"


def _nbytes(weights: Weights, entry: Entry) -> int:
    return int(np.prod(entry.shape)) * weights.leaves[entry.target].dtype.itemsize


def _shards(weights: Weights, entries: list[Entry], limit: int) -> Iterator[list[Entry]]:
    shard, size = [], 0
    for entry in entries:
        if shard and size + _nbytes(weights, entry) > limit:
            yield shard
            shard, size = [], 0
        shard.append(entry)
        size += _nbytes(weights, entry)
    yield shard


def _tensor(weights: Weights, entry: Entry) -> np.ndarray:
    tensor = part(weights, entry.target, entry.index)
    # safetensors writes an array's memory as it lies there: a transposed view would come out wrong.
    return np.asarray(np.swapaxes(tensor, -1, -2) if entry.transposed else tensor, order="C")
