"""A server whose programs keep `ctypes`: what the kernel alone holds back. Run by path."""

import importlib
import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "sake_jax/evaluate/sandbox/contained"

if __name__ == "__main__":
    found = importlib.util.spec_from_file_location("contained", FOLDER / "__init__.py")
    sys.modules["contained"] = importlib.util.module_from_spec(found)
    program = importlib.import_module("contained.program")
    program._guard = lambda event, arguments: None
    program.keys = lambda: []
    importlib.import_module("contained.server").main()
