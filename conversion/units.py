"""What a converted checkpoint is made of: arrays that fit in memory, layers apart."""

import dataclasses
import functools
import math
from collections.abc import Collection, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sake_jax.conversion.checkpoint import Checkpoint, leaves, unit_rule
from sake_jax.conversion.quantize import INPUTS, KERNEL, Quantized
from sake_jax.conversion.rules import Entry, expand
from sake_jax.conversion.source import Index
from sake_jax.conversion.weights import Weights

BATCH = 256 * 2**20
"""Bytes written by one save, unless a single array has more."""


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


def list_units(checkpoint: Checkpoint) -> list[Unit]:
    """The arrays that a conversion writes, in order.

    >>> from sake_jax.conversion import list_units, locate, open_checkpoint
    >>> units = list_units(open_checkpoint(locate("tinystories")))
    >>> units[0].name, units[0].shape
    ('blocks.0.attention.key.kernel', (256, 256))
    """
    expected = leaves(checkpoint.config)
    kinds = {path: np.dtype(leaf.dtype) for path, leaf in checkpoint.weights.leaves.items()}

    def unit(entry: Entry) -> Unit:
        return Unit(entry.source, entry.target, entry.index, entry.shape, kinds[entry.target])

    return [unit(entry) for entry in expand(map(unit_rule, expected), expected)]


def batches(wanted: list[Unit]) -> Iterator[list[Unit]]:
    """Runs of units of at most BATCH bytes."""
    batch: list[Unit] = []
    for unit in wanted:
        if batch and sum(u.nbytes for u in batch) + unit.nbytes > BATCH:
            yield batch
            batch = []
        batch.append(unit)
    yield batch


def part(weights: Weights, target: str, place: tuple[int, ...], inside: Index = ()) -> np.ndarray:
    """One place on a parameter's leading axes: a layer, or an expert of a layer, or a slice."""
    read = weights.read(target, (*(slice(at, at + 1) for at in place), *inside))
    return read.reshape(read.shape[len(place) :])


def whole(weights: Weights, unit: Unit) -> np.ndarray:
    """A unit in this process's memory."""
    return part(weights, unit.target, unit.index)


def part_of_each(weights: Weights, unit: Unit, preferred: Collection[int] = ()) -> jax.Array:
    """A unit split over all processes of a run: each reads its slice.

    Along an axis that divides, a preferred one if there is one: chunks of files follow it. Where
    none divides, everybody reads all of it.
    """
    count = jax.process_count()
    first = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.asarray([first[process] for process in range(count)]), ("process",))
    fits = [axis for axis in _free_axes(weights, unit) if unit.shape[axis] % count == 0]
    fits.sort(key=lambda axis: axis not in preferred)
    names = ["process" if [axis] == fits[:1] else None for axis in range(len(unit.shape))]
    placed = NamedSharding(mesh, PartitionSpec(*names))
    read: Any = functools.partial(part, weights, unit.target, unit.index)
    return jax.make_array_from_callback(unit.shape, placed, read, dtype=unit.dtype)


def _free_axes(weights: Weights, unit: Unit) -> list[int]:
    """Axes of a unit along which a slice needs nothing of the others: scales sum over inputs."""
    axes = list(range(len(unit.shape)))
    summed = INPUTS - len(unit.index)
    computed = isinstance(weights, Quantized) and unit.target.endswith(KERNEL)
    return [axis for axis in axes if not (computed and axis == summed)]
