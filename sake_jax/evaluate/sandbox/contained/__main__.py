"""Makes this folder a package called `contained`, in an interpreter without `sake_jax`."""

import importlib
import importlib.util
import os
import sys


def main() -> None:
    """Serves until the caller hangs up."""
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location("contained", os.path.join(folder, "__init__.py"))
    assert spec is not None
    sys.modules["contained"] = importlib.util.module_from_spec(spec)
    importlib.import_module("contained.server").main()


if __name__ == "__main__":
    main()
