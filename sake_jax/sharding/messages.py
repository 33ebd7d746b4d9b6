"""Messages between the processes of a run. With one process nothing is sent and nothing waits.

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


def several_processes() -> bool:
    """Whether this run has more than one process.

    >>> several_processes()
    False
    """
    return jax.process_count() > 1


def is_leader() -> bool:
    """Whether this is process 0, the one that writes files and speaks to the user.

    >>> if is_leader():
    ...     print("only one process says this")
    only one process says this
    """
    return jax.process_index() == 0


def spans_processes(tree: Any) -> bool:
    """Whether some array of a tree is on devices of other processes too.

    >>> spans_processes({"weight": jax.numpy.ones(3)})
    False
    """
    return any(not getattr(leaf, "is_fully_addressable", True) for leaf in jax.tree.leaves(tree))


def to_host(tree: Any) -> Any:
    """A tree's arrays in this host's memory, whole, also where other processes hold parts.

    >>> to_host({"weight": jax.numpy.ones(2)})
    {'weight': array([1., 1.], dtype=float32)}
    """
    if not spans_processes(tree):
        return jax.tree.map(np.asarray, jax.device_get(tree))
    return jax.tree.map(_whole_array, tree)


def _whole_array(leaf: Any) -> np.ndarray:
    here = getattr(leaf, "is_fully_addressable", True) or leaf.is_fully_replicated
    return np.asarray(leaf if here else multihost_utils.process_allgather(leaf, tiled=True))


def gather_from_all(value: Value) -> list[Value]:
    """The values of all processes, in the order of their numbers.

    >>> gather_from_all("here")
    ['here']
    """
    if not several_processes():
        return [value]
    # Collectives move arrays of one shape: pickled, and padded to the longest message.
    mine = np.frombuffer(pickle.dumps(value), np.uint8)
    sizes = multihost_utils.process_allgather(np.int32(mine.size))
    # Powers of two: few shapes, so few programs.
    room = np.zeros(1 << int(sizes.max() - 1).bit_length(), np.uint8)
    room[: mine.size] = mine
    rows = multihost_utils.process_allgather(room)
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def broadcast_from_leader(make: Callable[[], Value]) -> Value:
    """Calls a function in process 0 alone and gives its result in all of them; an error there is
    raised everywhere.

    >>> broadcast_from_leader(lambda: 6 * 7)
    42
    """
    if not several_processes():
        return make()
    made: Any = None
    error: Exception | None = None
    if is_leader():
        try:
            made = make()
        except Exception as raised:
            error = raised
    made, reason = gather_from_all((made, None if error is None else str(error)))[0]
    if error is not None:
        raise error
    if reason is not None:
        raise ValueError(reason)
    return made
