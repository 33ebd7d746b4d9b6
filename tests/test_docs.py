"""Every example in README, docstrings and notebooks runs; the public names are the agreed ones."""

import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import sake_jax as sj

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
MODULES = [info.name for info in pkgutil.walk_packages(sj.__path__, "sake_jax.")]


@pytest.mark.parametrize("name", ["sake_jax", *MODULES])
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} must say what it is for"
    assert doctest.testmod(module).failed == 0


def test_readme_examples():
    """The python blocks of README, in order, in one namespace."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert blocks
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)


def test_readme_names_the_commands_that_ci_runs():
    assert "\npytest -n auto\n" in README
    assert "pytest -m slow" in README
    assert "\npytest -n auto\n" in (ROOT / ".ci/run").read_text()


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks(path, tmp_path):
    environment = os.environ | {"MPLBACKEND": "Agg", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "# %%" in path.read_text()


def public_names():
    return sorted(n for n, v in vars(sj).items() if not n.startswith("_") and not _is_detail(v))


def _is_detail(value):
    """Modules that are there only because something was imported from them."""
    return isinstance(value, types.ModuleType) and value.__name__ not in PUBLIC_MODULES


PUBLIC_MODULES = ("sake_jax.evaluate", "sake_jax.guidance", "sake_jax.reveal", "sake_jax.testing")


def test_public_names_are_the_agreed_ones():
    agreed = (Path(__file__).parent / "public_api.txt").read_text().split()
    assert public_names() == agreed, "change tests/public_api.txt on purpose, and the CHANGELOG"


@pytest.mark.parametrize("name", public_names())
def test_public_names_are_documented(name):
    value = getattr(sj, name)
    assert inspect.getdoc(value)
    if inspect.isfunction(value):
        unhinted = [
            p for p in inspect.signature(value).parameters.values() if p.annotation is p.empty
        ]
        assert name == "run" or not unhinted
