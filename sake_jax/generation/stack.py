"""Records of several batches as one, in the order of the rows."""

from typing import Any, NamedTuple

import jax
import numpy as np

from sake_jax.core import Canvas
from sake_jax.info import Info
from sake_jax.samplers.loop import Trip
from sake_jax.sharding import to_host


class Record(NamedTuple):
    """What a batch leaves behind: arrays in the host's memory, by the plan's steps."""

    info: Info
    tokens: np.ndarray | None
    """(S, B, N)"""


def record(trip: Trip, begun: Canvas) -> Record:
    """Moves what was recorded to the steps of the plan; those not taken changed nothing."""
    taken = int(trip.taken)
    steps = np.asarray(trip.steps)[:taken]

    def placed(leaf: Any) -> np.ndarray:
        leaf = to_host(leaf)
        out = np.zeros_like(leaf)
        out[steps] = leaf[:taken]
        return out

    info = trip.info
    if info.start is not None:
        rows = info.finite.shape[1]
        info = info.replace(
            start=np.repeat((to_host(info.start) - begun.start)[:, None], rows, axis=1)
        )
    info: Info = jax.tree.map(placed, info)
    idle = np.ones(len(info.finite), bool)
    idle[steps] = False
    info = info.replace(finite=info.finite | idle[:, None])
    if trip.tokens is None:
        return Record(info, None)
    last = np.searchsorted(steps, np.arange(len(idle)), side="right") - 1
    return Record(info, to_host(trip.tokens)[np.maximum(last, 0), :, begun.start :])


Seen = dict[tuple[int, int], tuple[Record, int]]
"""For each (prompt, sample): the record of its batch, and its row there."""


def stack(seen: Seen, order: list[tuple[int, int]]) -> tuple[Info | None, np.ndarray | None]:
    """Info and trajectory of all rows; None where rows were read from an earlier run."""
    if any(pair not in seen for pair in order):
        return None, None
    rows = [seen[pair] for pair in order]
    each = [jax.tree.map(lambda leaf, at=at: leaf[:, at], found.info) for found, at in rows]
    info = jax.tree.map(lambda *parts: np.stack(_same_width(parts), axis=1), *each)
    tokens = [found.tokens[:, at] for found, at in rows if found.tokens is not None]
    return info, np.stack(tokens, axis=1) if tokens else None


def _same_width(parts: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Canvases of different widths are padded on the left, as prompts are."""
    width = max(part.shape[-1] for part in parts) if parts[0].ndim > 1 else 0
    if all(part.ndim < 2 or part.shape[-1] == width for part in parts):
        return list(parts)
    return [
        np.pad(part, [(0, 0)] * (part.ndim - 1) + [(width - part.shape[-1], 0)]) for part in parts
    ]
