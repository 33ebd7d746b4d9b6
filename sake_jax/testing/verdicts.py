"""What a law says when it is broken: the rule, what was found, the remedy."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import chex
import jax
import numpy as np
from jax import Array


def hold(true: Any, rule: str, got: str, remedy: str) -> None:
    """Raises AssertionError unless it is true."""
    if not true:
        raise AssertionError(f"{rule}, got {got}; {remedy}.")


def same_distribution(a: Array, b: Array, rule: str, remedy: str) -> None:
    """Logits of any shape that must give the same probabilities."""
    close(jax.nn.softmax(a), jax.nn.softmax(b), 2e-5, rule, "probabilities", remedy)


def close(a: Any, b: Any, atol: float, rule: str, what: str, remedy: str) -> None:
    """Numbers that must be equal but for rounding."""
    a, b = np.asarray(a), np.asarray(b)
    same = np.allclose(a, b, rtol=1e-6, atol=atol, equal_nan=True)
    hold(same, rule, f"{what} that differ by {np.max(np.abs(a - b)):.3g}", remedy)


def alike(wanted: Any, got: Any, rule: str, remedy: str) -> None:
    """The same structure, shapes and dtypes; chex's own words are many, so they come last."""
    try:
        chex.assert_trees_all_equal_shapes_and_dtypes(wanted, got)
    except AssertionError as error:
        difference = f"{_outline(got)} for {_outline(wanted)}"
        raise AssertionError(f"{rule}, got {difference}; {remedy}.") from error


def _outline(tree: Any) -> list[str]:
    return [f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree)]


def obey(laws: Mapping[str, Callable[..., None]], skip: Iterable[str], *case: Any) -> None:
    """Holds a case to laws; raises AssertionError naming the first that is broken."""
    for name, law in laws.items():
        if name in skip:
            continue
        try:
            law(*case)
        except AssertionError as error:
            raise AssertionError(f"law {name!r} is broken: {error}") from error
