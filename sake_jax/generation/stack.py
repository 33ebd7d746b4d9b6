"""Records of several batches as one, in the order of the rows."""

from typing import NamedTuple

import jax
import numpy as np

from sake_jax.info import Info
from sake_jax.samplers.loop import RunProgress
from sake_jax.sharding import to_host
from sake_jax.view import Canvas


class Record(NamedTuple):
    """What a batch leaves behind: arrays in the host's memory, by the plan's steps."""

    info: Info
    tokens: np.ndarray | None
    """(S, B, N)"""


def record(progress: RunProgress, begun: Canvas) -> Record:
    """What was recorded, in the host's memory; columns are counted from the first written one."""
    info, first = progress.info, begun.generation_start
    if info.window_start is not None:
        # One window for all rows, but stacked batches may stand elsewhere.
        starts = to_host(info.window_start) - first
        rows = info.finite.shape[1]
        info = info.replace(window_start=np.repeat(starts[:, None], rows, axis=1))
        # Steps that were not taken have no window.
        info = info.replace(window_start=info.window_start * to_host(progress.taken)[:, None])
    tokens = None if progress.tokens is None else to_host(progress.trajectory())[:, :, first:]
    return Record(to_host(info), tokens)


Seen = dict[tuple[int, int], tuple[Record, int]]
"""For each (prompt, sample): the record of its batch, and its row there."""


def stack(seen: Seen, order: list[tuple[int, int]]) -> tuple[Info | None, np.ndarray | None]:
    """Info and trajectory of all rows; None where rows were read from an earlier run."""
    if any(pair not in seen for pair in order):
        return None, None
    rows = [seen[pair] for pair in order]
    each = [jax.tree.map(lambda leaf, at=at: leaf[:, at], batch.info) for batch, at in rows]
    info = jax.tree.map(lambda *parts: np.stack(_same_width(parts), axis=1), *each)
    tokens = [batch.tokens[:, at] for batch, at in rows if batch.tokens is not None]
    return info, np.stack(tokens, axis=1) if tokens else None


def _same_width(parts: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Canvases of different widths are padded on the left, as prompts are."""
    width = max(part.shape[-1] for part in parts) if parts[0].ndim > 1 else 0
    if all(part.ndim < 2 or part.shape[-1] == width for part in parts):
        return list(parts)
    return [
        np.pad(part, [(0, 0)] * (part.ndim - 1) + [(width - part.shape[-1], 0)]) for part in parts
    ]
