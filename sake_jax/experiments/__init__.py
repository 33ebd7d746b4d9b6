"""The paper's experiments, and ours, as functions.

Each is a function in a file of its own name, which takes a folder and gives a `Study`. To add one,
write the file and put its name into `EXPERIMENTS`.

>>> from sake_jax.experiments import load_experiment
>>> load_experiment("gaussian").__name__
'gaussian'
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from sake_jax.checks import one_of

if TYPE_CHECKING:
    from sake_jax.experiments.study import Study

EXPERIMENTS = ("solve", "gaussian", "arithmetic", "story", "brainstorm", "sensitivity", "entropy")


def load_experiment(name: str) -> "Callable[..., Study]":
    """One of `EXPERIMENTS`; its file is read only now, so that a list of names costs nothing."""
    one_of("NAME", name, EXPERIMENTS)
    return getattr(importlib.import_module(f"sake_jax.experiments.{name}"), name)
