"""Strict JAX, run-time shape checks, and goldens for all tests."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from compiling import flags

os.environ.setdefault("XLA_FLAGS", flags(devices=8))

from jaxtyping import install_import_hook

install_import_hook("sake_jax", "typechecker.check")  # before the first import of sake_jax

import json
from pathlib import Path

import hypothesis
import jax
import numpy as np
import pytest

from browsers import chromium

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Compilation takes longer than hypothesis likes, CI must not depend on luck, and a smaller
# seed explains nothing, so failures are not shrunk.
PHASES = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
hypothesis.settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=10, phases=PHASES
)
hypothesis.settings.load_profile("ci")

GOLDENS = Path(__file__).parent / "goldens"


MAPS, MOST_MAPS = Path("/proc/self/maps"), 30_000
"""Memory regions that are mapped, and about half of how many Linux lets a process have."""


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
    """Thousands of compiled programs in one process reach the limit of mapped memory regions."""
    yield
    jax.clear_caches()


@pytest.fixture(autouse=True)
def forget_when_there_are_many():
    """The slow cases of one module alone may compile so many."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture(scope="session")
def golden():
    """`golden("guidance/golden_guidance.npz")`: arrays of a file of reference outputs."""

    def load(name: str):
        path = GOLDENS / name
        if path.suffix == ".json":
            return json.loads(path.read_text())
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)

    return load


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One Chromium for all tests that look at pages."""
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver
