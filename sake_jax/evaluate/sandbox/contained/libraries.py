"""Which shared libraries the standard library's own modules need."""

import contextlib
import ctypes
import json
import os
import sys

LEFT_OUT = ("_tkinter", "_test", "_ctypes_test", "_xx", "xx")
"""Modules that draw windows or test the interpreter."""


def standard_folders() -> list[str]:
    """Where this interpreter imports its standard library from."""
    folders = [os.path.abspath(path) for path in sys.path if os.path.isdir(path)]
    return [path for path in folders if not any(_inside(path, other) for other in folders)]


def shared_libraries() -> list[str]:
    """Files that the modules load, under the names they are looked up by.

    A child loads all of them and lists what it has, so that this process stays small.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(_load_all()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        listed = pipe.read()
    return json.loads(listed or "[]")


def _load_all() -> list[str]:
    for folder in filter(os.path.isdir, sys.path):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".so") and not name.startswith(LEFT_OUT):
                _load(os.path.join(folder, name))
    folders = standard_folders()
    return [path for path in _loaded() if not any(_inside(path, other) for other in folders)]


def _load(path: str) -> None:
    with contextlib.suppress(OSError):  # a module without its library works for nobody
        ctypes.CDLL(path, mode=os.RTLD_LAZY)


def _loaded() -> list[str]:
    paths: list[str] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    def visit(entry: int, size: int, data: int) -> int:
        name = ctypes.c_char_p.from_address(entry + ctypes.sizeof(ctypes.c_void_p)).value
        paths.append(os.path.normpath(os.fsdecode(name or b"")))
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(visit, None)
    return [path for path in paths if os.path.isabs(path) and os.path.isfile(path)]


def _inside(path: str, folder: str) -> bool:
    return path != folder and path.startswith(folder + os.sep)
