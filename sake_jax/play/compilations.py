"""How often JAX traces and compiles, so that a page can show that a slider does neither."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

from jax import monitoring

EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "traced",
    "/jax/core/compile/backend_compile_duration": "compiled",
}
"""What JAX tells its listeners, and what we call it."""

_of_thread = threading.local()


def _listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
    """JAX calls this in the thread that traces or compiles."""
    counts = getattr(_of_thread, "counts", None)
    if counts is not None and event in EVENTS:
        counts[EVENTS[event]] += 1


monitoring.register_event_duration_secs_listener(_listen)


@contextlib.contextmanager
def count_compilations() -> Iterator[Counter[str]]:
    """Counts what this thread traces and compiles until the block ends.

    >>> import jax
    >>> double = jax.jit(lambda x: 2 * x)
    >>> with count_compilations() as first:
    ...     _ = double(1.0)
    >>> with count_compilations() as again:
    ...     _ = double(2.0)
    >>> first["compiled"], again["compiled"], again["traced"]
    (1, 0, 0)
    """
    outer = getattr(_of_thread, "counts", None)
    _of_thread.counts = Counter()
    try:
        yield _of_thread.counts
    finally:
        _of_thread.counts = outer
