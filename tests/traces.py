"""How often a function is traced, which is how many programs it compiles."""

from collections.abc import Callable

import chex


def traced(function: Callable, times: int = 1) -> Callable:
    """The function, which fails when it is traced more often than this; to be put in `jax.jit`."""
    chex.clear_trace_counter()  # it counts by name, over all tests of a process
    return chex.assert_max_traces(function, n=times)
