"""The scripts of benchmarks/ as modules."""

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load(name):
    """The module benchmarks/<name>.py, under a name that clashes with no other."""
    specification = importlib.util.spec_from_file_location(f"bench_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module
