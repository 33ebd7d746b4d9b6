"""Vendi score and Rényi kernel entropy: how many different samples there are, in effect."""

import math
from typing import Any

import numpy as np

from sake_jax.checks import require

TOLERANCE = 1e-5
"""How far a similarity may be from symmetric, and its diagonal from 1: float32 is welcome."""


def vendi(features: Any = None, *, similarity: Any = None, order: float = 1.0) -> float:
    """The effective number of different samples (Friedman and Dieng 2023), 1 to N.

    exp of the Rényi entropy of the eigenvalues of K / N, where K holds the similarities. High
    orders look at frequent kinds, low ones at rare kinds too.

    >>> round(vendi([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), 6)
    2.0

    Args:
      features: (N, D) vectors, compared by cosine, such as `Encoder.embed` gives.
      similarity: (N, N) instead of them: K itself, symmetric, with ones on its diagonal and no
        negative eigenvalues.
      order: of the entropy: 1 is Shannon's, `math.inf` looks at the largest eigenvalue only.
    """
    right = isinstance(order, int | float) and order > 0
    require(right, "order must be a number above 0", order, "1 is usual, math.inf is the largest")
    matrix = _density(features, similarity)
    return math.exp(_collision(matrix) if order == 2 else _entropy(matrix, order))


def rke(features: Any = None, *, similarity: Any = None) -> float:
    """Rényi kernel entropy of order 2 in nats (Jalali et al. 2023): exp of it counts modes.

    It is the logarithm of `vendi` of order 2, and needs no eigenvalues. The arguments are the same.

    >>> round(rke([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), 4)  # log 2
    0.6931
    """
    return _collision(_density(features, similarity))


def _collision(matrix: np.ndarray) -> float:
    """The sum of squared eigenvalues is that of squared entries."""
    return -math.log(float(np.sum(matrix * matrix)))


def _entropy(matrix: np.ndarray, order: float) -> float:
    values = np.linalg.eigvalsh(matrix)
    # What is left of zeros is rounding, which low orders would count as rare kinds.
    values = values[values > len(values) * np.finfo(np.float64).eps * values.max()]
    if order == 1:
        return float(-np.sum(values * np.log(values)))
    if order == math.inf:
        return -math.log(values.max())
    return math.log(np.sum(values**order)) / (1 - order)


def _density(features: Any, similarity: Any) -> np.ndarray:
    """A matrix of trace 1 with the eigenvalues of K / N that are not 0."""
    rule, remedy = "give features, or similarity", "leave the other out"
    require((features is None) != (similarity is None), rule, "both or none", remedy)
    return _of_features(features) if similarity is None else _of_similarity(similarity)


def _of_features(features: Any) -> np.ndarray:
    rows = np.asarray(features, np.float64)
    right = rows.ndim == 2 and rows.size > 0 and bool(np.isfinite(rows).all())
    require(right, "features must be (N, D) finite numbers", rows.shape, "give one row a sample")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rule = "features must have a direction"
    require((norms > 0).all(), rule, "a row of zeros", "leave that sample out")
    rows = rows / norms
    # Both products have the same eigenvalues, up to zeros.
    small = rows.T @ rows if rows.shape[1] < len(rows) else rows @ rows.T
    return small / len(rows)


def _of_similarity(similarity: Any) -> np.ndarray:
    matrix = np.asarray(similarity, np.float64)
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and matrix.size > 0
    require(square, "similarity must be (N, N)", matrix.shape, "one row and column a sample")
    even = np.allclose(matrix, matrix.T, rtol=0, atol=TOLERANCE)
    require(even, "similarity must be symmetric", "another matrix", "average it with its transpose")
    ones = np.allclose(np.diagonal(matrix), 1, rtol=0, atol=TOLERANCE)
    rule = "similarity must have ones on its diagonal"
    require(ones, rule, np.diagonal(matrix), "scale rows and columns by 1/sqrt of it")
    return matrix / len(matrix)
