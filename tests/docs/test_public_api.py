"""The public names are the agreed ones, and each has words and an example that runs."""

import doctest
import importlib
import inspect
from operator import attrgetter

import pytest

import sake_jax as sj
from public_api import MODULES, RECORDED, inside, lines, public

NAMES = public() | {
    f"{module}.{name}": value for module in MODULES for name, value in inside(module).items()
}
"""All of them: what `sake_jax` has by name, and what its public modules have beyond that."""


def test_public_names_are_the_agreed_ones():
    agreed, now = RECORDED.read_text().splitlines(), list(lines())
    gone, new = sorted(set(agreed) - set(now)), sorted(set(now) - set(agreed))
    remedy = "if on purpose: python tests/public_api.py, and a line in the CHANGELOG"
    assert now == agreed, f"gone: {gone}, new: {new}; {remedy}"


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_documented(name):
    value = NAMES[name]
    assert inspect.getdoc(value)
    if inspect.isfunction(value):
        hints = inspect.signature(value).parameters.values()
        assert not [part for part in hints if part.annotation is part.empty]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_public_names_have_examples_that_run(name):
    """`test_docstring_examples` runs what doctest finds in a module: it must find this one."""
    value = NAMES[name]
    home = value if name in MODULES else importlib.import_module(value.__module__)
    own = home.__name__ + ("" if name in MODULES else f".{value.__qualname__}")
    found = [test.name for test in doctest.DocTestFinder().find(home) if test.examples]
    assert own in found, f"{own} must have an example in its docstring; see its neighbours"


@pytest.mark.parametrize("name", MODULES)
def test_public_modules_are_modules_of_ours(name):
    inside = "samplers.reveal" if name == "reveal" else name
    assert attrgetter(name)(sj).__name__ == f"sake_jax.{inside}"
