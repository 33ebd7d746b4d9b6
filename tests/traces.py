"""How often a function is traced, which is how many programs it compiles."""

from collections.abc import Callable
from typing import Any

import chex


def traced(function: Callable, times: int = 1) -> Callable:
    """The function, which fails when it is traced more often than this; to be put in `jax.jit`."""
    chex.clear_trace_counter()  # it counts by name, over all tests of a process
    return chex.assert_max_traces(function, n=times)


def programs(*jitted: Any) -> list[int]:
    """How many programs functions have that the library has jitted itself, so that nothing can be
    put around what is traced. JAX has no public name for it."""
    return [function._cache_size() for function in jitted]
