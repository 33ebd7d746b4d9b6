"""What a converted checkpoint is made of: arrays that fit in memory, layers apart."""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from sake_jax.conversion.checkpoint import Checkpoint, leaves, unit_rule
from sake_jax.conversion.rules import Entry, expand
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


def units(checkpoint: Checkpoint) -> list[Unit]:
    """What will be written, in order."""
    found = leaves(checkpoint.config)
    kinds = {path: np.dtype(leaf.dtype) for path, leaf in checkpoint.weights.leaves.items()}

    def unit(entry: Entry) -> Unit:
        return Unit(entry.source, entry.target, entry.index, entry.shape, kinds[entry.target])

    return [unit(entry) for entry in expand(map(unit_rule, found), found)]


def batches(wanted: list[Unit]) -> Iterator[list[Unit]]:
    """Runs of units of at most BATCH bytes."""
    batch: list[Unit] = []
    for unit in wanted:
        if batch and sum(u.nbytes for u in batch) + unit.nbytes > BATCH:
            yield batch
            batch = []
        batch.append(unit)
    yield batch


def part(weights: Weights, target: str, place: tuple[int, ...]) -> np.ndarray:
    """One place on a parameter's leading axes: a layer, or an expert of a layer."""
    read = weights.read(target, tuple(slice(at, at + 1) for at in place))
    return read.reshape(read.shape[len(place) :])
