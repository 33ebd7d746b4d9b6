"""Checkpoints as lazy collections of tensors: nothing is read before it is asked for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import ml_dtypes
import numpy as np
import tensorstore
from safetensors import SafetensorError, safe_open

from sake_jax.checks import require

Index = tuple[slice, ...]

DTYPES: Mapping[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
}
"""What weights may be stored as."""

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
CONFIG = "config.json"
INDEX_FILE = "model.safetensors.index.json"
MOST_JSON = 64 * 2**20
"""Bytes of a JSON file that is read whole: an index of a hundred thousand tensors has a tenth."""
WEIGHTS = "weights"
"""The orbax checkpoint inside a converted one."""


class CheckpointError(ValueError):
    """A file that cannot be read as what it claims to be.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     half = (Path(folder) / "model.safetensors").write_bytes(b"half a file")
    ...     try:
    ...         Safetensors(Path(folder))
    ...     except CheckpointError as error:
    ...         print("truncated" in str(error))
    True
    """


@runtime_checkable
class Source(Protocol):
    """Named tensors that can be read in slices."""

    @property
    def files(self) -> Mapping[str, Path]:
        """The files it reads, by their names."""
        ...

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...
    @property
    def dtypes(self) -> Mapping[str, np.dtype]: ...
    def read(self, name: str, index: Index) -> np.ndarray: ...


class Safetensors:
    """A folder with model.safetensors, or with shards and their index."""

    def __init__(self, folder: Path):
        self.files = {name: folder / name for name in _weight_files(folder)}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, np.dtype] = {}
        self._parts: dict[str, Any] = {}
        file_of: dict[str, str] = {}
        for name, file in self.files.items():
            handle = _open(file)
            for tensor in handle.keys():  # noqa: SIM118, it is not a dictionary
                rule, remedy = "every tensor must be in one file only", "remove the stale shard"
                require(tensor not in file_of, rule, (tensor, file_of.get(tensor), name), remedy)
                file_of[tensor] = name
                self._add(tensor, handle.get_slice(tensor))
        _check_index(folder, file_of)

    def _add(self, tensor: str, part: Any) -> None:
        kind = part.get_dtype()
        rule = f"{tensor} must be stored as one of {', '.join(DTYPES)}"
        require(kind in DTYPES, rule, kind, "quantised and integer weights are not read")
        self._parts[tensor] = part
        self.shapes[tensor] = tuple(part.get_shape())
        self.dtypes[tensor] = np.dtype(DTYPES[kind])

    def read(self, name: str, index: Index) -> np.ndarray:
        part = self._parts[name]
        return np.asarray(part[index] if index else part[...])


def _open(file: Path) -> Any:
    require(file.is_file(), "every shard must be there", str(file), "download it again")
    try:
        return safe_open(str(file), framework="np")
    except (SafetensorError, OSError) as error:
        reason = "a whole safetensors file; it may be truncated: download it again"
        raise CheckpointError(f"{file} is not {reason} ({error})") from error


def _weight_files(folder: Path) -> list[str]:
    """Names of a folder's safetensors files, or a reason why there are none."""
    if (folder / INDEX_FILE).is_file():
        return sorted(set(_index(folder).values()))
    files = sorted(file.name for file in folder.glob("*.safetensors"))
    pickles = [file.name for kind in PICKLES for file in folder.glob(kind)]
    rule = f"{folder} must hold model.safetensors, or shards with {INDEX_FILE}"
    remedy = "check the path; pickles are never opened, as they can run code: save as safetensors"
    require(len(files) == 1, rule, files + pickles or "no weights", remedy)
    return files


def _index(folder: Path) -> dict[str, str]:
    """Which shard holds which tensor. Only files of the folder itself are ever opened."""
    index: Any = read_object(folder / INDEX_FILE).get("weight_map")
    rule, remedy = f"{INDEX_FILE} must have a weight_map", "download it again"
    require(isinstance(index, dict) and index, rule, index, remedy)
    strange = [name for name in index.values() if not _is_weight_file(name)]
    rule = f"weight_map in {INDEX_FILE} must name .safetensors files of its own folder"
    require(not strange, rule, strange[:3], "mend the index, or download it again")
    return index


def _is_weight_file(name: Any) -> bool:
    """Whether it is the bare name of a weight file: no folder, no drive, nothing hidden."""
    plain = isinstance(name, str) and not set(name) & set("/\\:\0")
    return plain and name.endswith(".safetensors") and not name.startswith(".")


def read_object(file: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    bytes_there, again = file.stat().st_size, "download it again"
    require(bytes_there <= MOST_JSON, f"{file} must be at most 64 MB", f"{bytes_there:,}", again)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also bytes that are no text, endless digits
        raise ValueError(f"{file} must be JSON, got {error}; {again}.") from error
    require(isinstance(content, dict), f"{file} must hold an object", content, again)
    return content


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a folder."""
    file = folder / CONFIG
    rule, remedy = f"{folder} must hold {CONFIG}", "is it a model's folder?"
    require(file.is_file(), rule, sorted(p.name for p in folder.iterdir())[:8], remedy)
    return read_object(file)


def _check_index(folder: Path, file_of: Mapping[str, str]) -> None:
    """The index of shards and the shards themselves must agree on every tensor."""
    if not (folder / INDEX_FILE).is_file():
        return
    index = _index(folder)
    names = index.keys() | file_of.keys()
    wrong = sorted(name for name in names if index.get(name) != file_of.get(name))
    rule = f"{INDEX_FILE} and the shards must name the same tensors"
    require(not wrong, rule, wrong[:8], "download the checkpoint again")


class Orbax:
    """The weights of a converted checkpoint, read through tensorstore slice by slice."""

    def __init__(self, folder: Path, units: Mapping[str, Mapping[str, Any]]):
        """`units` comes from the manifest: name to shape and dtype."""
        self.files: dict[str, Path] = {}
        self.shapes = {name: tuple(unit["shape"]) for name, unit in units.items()}
        self.dtypes = {name: np.dtype(unit["dtype"]) for name, unit in units.items()}
        self._base = (folder / WEIGHTS / "state").resolve().as_uri() + "/"
        # No cache: every slice is read once, and a cache would hold the model a second time.
        self._context = tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}})

    def read(self, name: str, index: Index) -> np.ndarray:
        store = {"driver": "ocdbt", "base": self._base, "path": f"{name}/"}
        spec = {"driver": "zarr3", "kvstore": store}
        try:
            opened: Any = tensorstore.open(spec, context=self._context, read=True).result()
            rule = f"{name} must be stored as the manifest says"
            same = tuple(opened.shape) == self.shapes[name]
            require(same, rule, tuple(opened.shape), "convert the checkpoint again")
            return np.asarray(opened[index].read().result())
        except ValueError as error:
            remedy = "its files are damaged or incomplete: convert the checkpoint again"
            raise CheckpointError(f"cannot read {name} ({error}); {remedy}.") from error
