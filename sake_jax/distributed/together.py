"""What processes of one run tell each other. With one process nothing is said and nothing waits.

Every process must call these functions, in the same order: they wait for the others. They trust
each other, as processes that run one program do: messages are pickled. Files never are.
"""

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

Value = TypeVar("Value")


def several() -> bool:
    """Whether this run has more than one process."""
    return jax.process_count() > 1


def leads() -> bool:
    """Whether this is process 0, the one that writes files and speaks to the user."""
    return jax.process_index() == 0


def spread(tree: Any) -> bool:
    """Whether some array of a tree is on devices of other processes too."""
    return any(not getattr(leaf, "is_fully_addressable", True) for leaf in jax.tree.leaves(tree))


def fetched(tree: Any) -> Any:
    """A tree's arrays in this host's memory, whole, also where other processes hold parts."""
    if not spread(tree):
        return jax.tree.map(np.asarray, jax.device_get(tree))
    return jax.tree.map(_fetched, tree)


def _fetched(leaf: Any) -> np.ndarray:
    here = getattr(leaf, "is_fully_addressable", True) or leaf.is_fully_replicated
    return np.asarray(leaf if here else multihost_utils.process_allgather(leaf, tiled=True))


def gathered(value: Value) -> list[Value]:
    """What each process has, by their numbers.

    >>> gathered("here")
    ['here']
    """
    if not several():
        return [value]
    mine = np.frombuffer(pickle.dumps(value), np.uint8)
    sizes = multihost_utils.process_allgather(np.int32(mine.size))
    # Powers of two: few shapes, so few programs.
    room = np.zeros(1 << int(sizes.max() - 1).bit_length(), np.uint8)
    room[: mine.size] = mine
    rows = multihost_utils.process_allgather(room)
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def told(make: Callable[[], Value]) -> Value:
    """What process 0 makes, in all of them; an error there is an error everywhere.

    >>> told(lambda: 6 * 7)
    42
    """
    if not several():
        return make()
    made: Any = None
    error: Exception | None = None
    if leads():
        try:
            made = make()
        except Exception as found:
            error = found
    made, reason = gathered((made, None if error is None else str(error)))[0]
    if error is not None:
        raise error
    if reason is not None:
        raise ValueError(reason)
    return made
