"""How a run of several processes ends before its time: all of them, soon, each saying why.

Three things can happen to a process, and the others must hear of each.

- It fails with an error. Then it leaves a note with JAX's coordination service, which the others
  look for every `LOOK` seconds.
- It is killed. Then the service misses its heartbeats and ends the others; where process 0, with
  the service itself, was killed, they end at once.
- It waits for one that is gone. Collectives over a network then fail by themselves.

JAX's engine ends a process by `abort` from a thread of its own, after a page of log lines. What the
user should do stands in none of them, so our own words are added as the process's last.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import jax
from jax._src import distributed as engine  # its client has no public name

NOTE = "sake_jax/ended"
LOOK = 1.0
"""Seconds between looks for a note."""
STAY = 3 * LOOK
"""Seconds for which a process that failed stays, so that the others can read its note."""
HEARTBEAT = 30
"""Seconds of silence after which the service takes a process for dead."""
KEPT = "finished results are kept where they have a folder: start all processes again to go on"
SIGNS = ("Gloo", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED")
"""What the engine's errors say when another process is gone."""
LOST = f"a process of this run has ended or cannot be reached; {KEPT}."

_last_words: list[bytes] = []


def set_last_words(text: str) -> None:
    """What this process says if JAX's engine ends it."""
    if not _last_words:
        _last_words.append(b"")
        _on_abort()
    _last_words[0] = f"error: {text}\n".encode()


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _aborted(number: int) -> None:
    os.write(2, _last_words[0])
    os._exit(1)


def _on_abort() -> None:
    """Below Python's own handlers, which wait for the main thread: that one may be blocked."""
    library = ctypes.CDLL(None)
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.signal(int(signal.SIGABRT), ctypes.cast(_aborted, ctypes.c_void_p))


def watch() -> None:
    """From now on notes of others end this process, and an error that nobody catches the others."""
    threading.Thread(target=_watch, args=(engine.global_state.client,), daemon=True).start()
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        lost = describe_lost_process(error)
        if lost is not None:  # last, below the engine's own words
            _say(lost)
        leave(1, lost or f"{kind.__name__}: {error}")

    sys.excepthook = hook


def _watch(client: Any) -> None:
    while True:
        time.sleep(LOOK)
        note = _note(client)
        if note and not note.startswith(_mine()):
            _say(f"{note}; {KEPT}.")
            os._exit(1)


def _note(client: Any) -> str | None:
    try:
        return client.key_value_try_get(NOTE)
    except jax.errors.JaxRuntimeError:  # there is none, or nobody to ask: then the engine ends us
        return None


def _mine() -> str:
    return f"process {engine.global_state.process_id} has ended"


def leave(code: int, reason: str) -> None:
    """Ends this process after an error, and tells the others why; nothing if it is alone.

    Not by way of Python's exit: there JAX would wait for the others first.

    >>> leave(1, "the disk is full")  # this process is alone: nobody has to be told
    """
    client = engine.global_state.client
    if client is None:
        return
    try:
        client.key_value_set(NOTE, f"{_mine()}: {reason.rstrip('.')}")
    except jax.errors.JaxRuntimeError:  # somebody else was first
        pass
    else:
        time.sleep(STAY)
    sys.stdout.flush()
    os._exit(code)


def describe_lost_process(error: BaseException) -> str | None:
    """What to say of an error that comes from a process being gone; None for others.

    >>> describe_lost_process(ValueError("steps must be at most length")) is None
    True
    """
    client = engine.global_state.client
    if client is None or not any(_is_engines(each) for each in _causes(error)):
        return None
    time.sleep(2 * LOOK)  # it may have left a note, which says more: then the watch ends us
    return LOST


def _is_engines(error: BaseException) -> bool:
    engines = isinstance(error, jax.errors.JaxRuntimeError)
    return engines and any(sign in str(error) for sign in SIGNS)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those it was raised from: others wrap the engine's in their own."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _say(text: str) -> None:
    sys.stdout.flush()
    os.write(2, f"error: {text}\n".encode())
