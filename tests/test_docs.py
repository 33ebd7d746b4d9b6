"""Every example in docstrings and every notebook runs; pages have tests of their own, in docs/."""

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import sake_jax as sj

ROOT = Path(__file__).parents[1]
# An editable install does not show models/ and conversion/ inside of sake_jax/.
PACKAGES = [sj, sj.models, sj.conversion]
MODULES = {
    info.name
    for package in PACKAGES
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
}


@pytest.mark.parametrize("name", ["sake_jax", *sorted(MODULES)])
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} must say what it is for"
    assert doctest.testmod(module).failed == 0


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


LONG = ("converting", "gaussian")


def test_rendered_notebooks_have_the_cells_of_their_sources():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "notebooks", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow, id=path.stem)
        if path.stem in LONG
        else pytest.param(path, id=path.stem)
        for path in NOTEBOOKS
    ],
)
def test_notebooks(path, tmp_path):
    environment = os.environ | {"MPLBACKEND": "Agg", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "# %%" in path.read_text()
