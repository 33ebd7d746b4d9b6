"""Records of several batches as one, in the order of the rows."""

from typing import Any

import jax
import numpy as np

from sake_jax.core import Info
from sake_jax.samplers.drive import Trip

Seen = dict[tuple[int, int], tuple[Trip, int]]
"""For each (prompt, sample): the run of its batch, and its row there."""


def stack(seen: Seen, order: list[tuple[int, int]], columns: int) -> tuple[Info | None, Any]:
    """Info and trajectory of all rows; None where rows were read from an earlier run."""
    if any(pair not in seen for pair in order):
        return None, None
    rows = [seen[pair] for pair in order]
    each = [_row(trip.info, at) for trip, at in rows]
    info = jax.tree.map(lambda *parts: np.stack(_same_width(parts), axis=1), *each)
    if rows[0][0].tokens is None:
        return info, None
    tokens = [np.asarray(trip.tokens)[:, at, -columns:] for trip, at in rows]
    return info, np.stack(tokens, axis=1)


def _row(info: Info, at: int) -> Info:
    """One row's part; numbers that belong to the whole batch are the same for each row."""
    return jax.tree.map(lambda leaf: np.asarray(leaf if leaf.ndim == 1 else leaf[:, at]), info)


def _same_width(parts: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Canvases of different widths are padded on the left, as prompts are."""
    width = max(part.shape[-1] for part in parts) if parts[0].ndim > 1 else 0
    if all(part.ndim < 2 or part.shape[-1] == width for part in parts):
        return list(parts)
    return [
        np.pad(part, [(0, 0)] * (part.ndim - 1) + [(width - part.shape[-1], 0)]) for part in parts
    ]
