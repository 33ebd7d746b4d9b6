"""A model's parameters over a checkpoint's tensors: any slice of any parameter, on demand.

Loading, converting, exporting and verifying all read through this one door.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from sake_jax.conversion.rules import Entry, check
from sake_jax.conversion.source import Index, Source


@runtime_checkable
class Weights(Protocol):
    """Parameters by path, readable in slices."""

    @property
    def leaves(self) -> Mapping[str, jax.ShapeDtypeStruct]: ...
    def read(self, target: str, index: Index) -> np.ndarray: ...


def full(shape: Sequence[int], index: Index = ()) -> Index:
    """The index with every axis named and every bound a number."""
    index = (*index, *[slice(None)] * (len(shape) - len(index)))
    bounds = (part.indices(size) for part, size in zip(index, shape, strict=True))
    return tuple(slice(start, stop) for start, stop, _ in bounds)


def extent(index: Index) -> tuple[int, ...]:
    """The shape of what an index picks."""
    return tuple(part.stop - part.start for part in index)


def slice_by_slice(
    read: Callable[[Index], np.ndarray], index: Index, dtype: np.dtype
) -> np.ndarray:
    """Reads layer by layer into an array of this dtype: a wider copy exists of one layer only."""
    if len(index) < 3:
        return read(index).astype(dtype, copy=False)
    out = np.empty(extent(index), dtype)
    for at in range(index[0].start, index[0].stop):
        out[at - index[0].start] = read((slice(at, at + 1), *index[1:]))[0]
    return out


class Held:
    """Parameters in memory."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = arrays
        self.leaves = {
            path: jax.ShapeDtypeStruct(array.shape, array.dtype) for path, array in arrays.items()
        }

    def read(self, target: str, index: Index) -> np.ndarray:
        return np.asarray(self.arrays[target][index])


class Mapped:
    """Parameters put together from a checkpoint's tensors by a rule table."""

    def __init__(
        self,
        leaves: Mapping[str, jax.ShapeDtypeStruct],
        entries: Sequence[Entry],
        source: Source,
        ignored: Collection[str] = (),
    ):
        stored = {name: shape for name, shape in source.shapes.items() if name not in ignored}
        check(entries, leaves, stored)
        self.source = source
        self.entries: dict[str, list[Entry]] = {}
        for entry in entries:
            self.entries.setdefault(entry.target, []).append(entry)
        self.leaves = {
            path: jax.ShapeDtypeStruct(leaf.shape, self._dtype(path))
            for path, leaf in leaves.items()
        }

    def _dtype(self, path: str) -> np.dtype:
        """As stored; float32 where a stacked parameter's tensors differ."""
        kinds = {self.source.dtypes[entry.source] for entry in self.entries[path]}
        return kinds.pop() if len(kinds) == 1 else np.dtype(np.float32)

    def read(self, target: str, index: Index) -> np.ndarray:
        leaf, entries = self.leaves[target], self.entries[target]
        index = full(leaf.shape, index)
        lead = len(entries[0].index)
        if lead == 0:
            return self._tensor(entries[0], index).astype(leaf.dtype, copy=False)
        out = np.empty(extent(index), leaf.dtype)
        for entry in entries:
            place = [at - part.start for at, part in zip(entry.index, index[:lead], strict=True)]
            if all(0 <= at < size for at, size in zip(place, out.shape[:lead], strict=True)):
                out[tuple(place)] = self._tensor(entry, index[lead:])
        return out

    def _tensor(self, entry: Entry, index: Index) -> np.ndarray:
        if not entry.transposed:
            return self.source.read(entry.source, index)
        swapped = (*index[:-2], index[-1], index[-2])
        return np.swapaxes(self.source.read(entry.source, swapped), -1, -2)


@dataclasses.dataclass
class Cast:
    """The same parameters in another dtype, but for int8 ones and those that are to stay exact."""

    weights: Weights
    dtype: Any
    exact: Collection[str] = ()

    def __post_init__(self):
        self.leaves = {
            path: jax.ShapeDtypeStruct(leaf.shape, self._kind(path, leaf.dtype))
            for path, leaf in self.weights.leaves.items()
        }

    def _kind(self, path: str, stored: np.dtype) -> np.dtype:
        fixed = stored == np.int8 or path in self.exact
        return stored if fixed else np.dtype(self.dtype)

    def read(self, target: str, index: Index) -> np.ndarray:
        leaf = self.leaves[target]
        read = functools.partial(self.weights.read, target)
        if leaf.dtype == self.weights.leaves[target].dtype:
            return read(index)
        return slice_by_slice(read, full(leaf.shape, index), leaf.dtype)
