"""Runs a program in its own process, and proves to the keeper that it came to its end.

What a pass is worth: the proof is a secret that arrives after the process is set up, and lies on
the interpreter's stack, in no variable, object or descriptor that Python code can reach, until
the program's last line is done. Memory is the only place to find it, so the ways to memory are
closed as far as Python allows: tracing, `ctypes`, modules that test the interpreter, further
interpreters. Who knows CPython by heart may still get there: by bytecode written by hand, a bug in
C code, the types of `ctypes`, which stay loaded after its functions are gone, or, where these
modules are built into the interpreter, by making them without an import. And no test inside a
process can tell an answer from an object that says it equals everything.
"""

import os
import random
import sys
import types
from collections.abc import Callable
from typing import NoReturn

SECRET = 32
"""Bytes."""
KINDS = ("failed", "syntax error", "exited", "out of memory")
"""What the process may say of itself."""
LONGEST = 1000
"""Letters of a message, before the keeper shortens it further."""
NAME = "program"
"""Of the program's module: what it guards with "__main__" does not run."""


def run(source: str, channel: int, doomed: list[tuple[str, types.ModuleType, bool]]) -> NoReturn:
    """Says that it begins, then runs the program. The keeper has the clock.

    Args:
      source: of the program.
      channel: to the keeper.
      doomed: see `keys`.
    """
    # Whatever happens later was found before the program could change it.
    read, write, leave, tell = os.read, os.write, os._exit, _tell
    write(channel, b"begun")
    try:
        code = compile(source, f"<{NAME}>", "exec", dont_inherit=True)
    except BaseException as error:
        tell(channel, "syntax error", error)
        leave(1)
    names = _tidy(doomed)
    try:
        # The tuple is made when the program is done; until then the secret, which comes first,
        # is on the stack.
        write(channel, (read(channel, SECRET), exec(code, names))[0])
    except BaseException as error:
        tell(channel, "failed", error)
    leave(1)


def _tell(channel: int, kind: str, error: BaseException) -> None:
    """Why the program failed; its own code may run here, to no avail."""
    if isinstance(error, MemoryError):
        os.write(channel, b"out of memory")
    elif isinstance(error, SystemExit):
        os.write(channel, b"exited")
    else:
        name, words = type(error).__name__, str(error)[:LONGEST]
        text = f"{name}: {words}" if words else name
        os.write(channel, f"{kind}\n{text}".encode(errors="replace"))


def _tidy(doomed: list[tuple[str, types.ModuleType, bool]]) -> dict:
    """An interpreter as if it had just been started for the program; its module's names."""
    while doomed:
        name, module, empty = doomed.pop()
        sys.modules.pop(name, None)
        if empty:
            vars(module).clear()
    module = types.ModuleType(NAME)
    sys.modules[NAME] = sys.modules["__main__"] = module
    sys.argv[:] = [NAME]
    random.seed(0)  # the same verdict each time
    sys.settrace = sys.setprofile = _ignore
    sys.addaudithook(_guard)
    return module.__dict__


def keys() -> list[tuple[str, types.ModuleType, bool]]:
    """Modules that can call the kernel, and our own: to be forgotten before a program runs.

    By name; with each, whether it is emptied too. Looked up once, in the server: to go through
    all modules would copy the memory that programs share.
    """
    own = __name__.rpartition(".")[0]
    modules = []
    for name, module in sys.modules.items():
        top = name.partition(".")[0]
        if top in ("ctypes", "_ctypes", own, "__main__"):
            modules.append((name, module, "ctypes" in top or "ctypes" in vars(module)))
    return modules


def _ignore(function: Callable | None) -> None:
    """Instead of `sys.settrace` and `sys.setprofile`: who watches frames can change them, or leave
    out lines, those of the tests too."""


def _guard(event: str, arguments: tuple) -> None:
    """Refuses what could reach the secret or leave out the tests.

    Its words are constants: what it looked up elsewhere, the program could change.
    """
    if event == "import":
        # A string made by us: the program's own, of a class of its own, could lie.
        last = "".join((arguments[0],)).rpartition(".")[2]
        # Memory, the interpreter's own tests, and interpreters that would have no guard.
        if last.startswith(("ctypes", "_ctypes", "_test", "_interp", "_xx")):
            raise ImportError(f"programs have no {last}")
    elif event in {"sys.settrace", "sys.setprofile", "sys.monitoring.register_callback"}:
        raise PermissionError(f"programs may not use {event}")
    elif event == "object.__setattr__":
        if arguments[1] == "__code__" and arguments[0].__code__.co_name == "_guard":
            raise PermissionError("programs may not change their guard")
    elif event.startswith("ctypes."):
        raise PermissionError("programs have no ctypes")
