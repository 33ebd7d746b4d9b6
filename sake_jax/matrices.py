"""Noise by matrices, as D3PM has it (Austin et al. 2021): any chain over tokens, in T steps.

Step t = 1 .. T replaces token x by y with the chance Q_t[x, y]; rows sum to 1. A time of our clock
is t / T, so that 0 is clean text and 1 all noise. (The reference counts from 0 to T - 1.)

>>> import sake_jax as sj
>>> steps = sj.matrices.uniform(sj.matrices.linear_betas(10, 0.1, 0.6), 16, bands=3)
>>> sj.matrices.TransitionMatrices.of(steps).size
16
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from sake_jax.checks import require, whole
from sake_jax.node import Node
from sake_jax.precision import precise, safe_log
from sake_jax.typing import Leaf, PerRow, WindowTokens

Chances = Float[Array, "B W V"]
Betas = Sequence[float] | np.ndarray
"""(T,) how strong the noise of each step is."""


Matrices = np.ndarray | Array | Sequence[np.ndarray]
"""(T, V, V) one for each step."""


class TransitionMatrices(Node):
    """T matrices of one step each, and their products.

    >>> chain = TransitionMatrices.of(absorbing(harmonic_betas(4), 5, state=4))
    >>> chain.cumulative[1, 0].tolist()  # after two of four steps half of the tokens are noise
    [0.5, 0.0, 0.0, 0.0, 0.5]
    """

    steps: Leaf
    """(T, V, V) of step t, at t - 1."""
    cumulative: Leaf
    """(T, V, V) of the first t steps together, at t - 1."""

    @classmethod
    def of(cls, steps: Matrices) -> "TransitionMatrices":
        """From (T, V, V) matrices whose rows sum to 1; products are taken in float64."""
        steps = np.asarray(steps, np.float64)
        rule, remedy = "transition matrices must have the shape (T, V, V)", "stack square ones"
        require(steps.ndim == 3 and steps.shape[1] == steps.shape[2], rule, steps.shape, remedy)
        sums = steps.sum(axis=-1)
        rule, remedy = "rows of transition matrices must be probabilities", "divide by their sums"
        right = np.all(steps >= 0) and np.allclose(sums, 1, atol=1e-5)
        require(right, rule, (float(steps.min()), float(sums.min()), float(sums.max())), remedy)
        products = [steps[0]]
        for matrix in steps[1:]:
            products.append(products[-1] @ matrix)
        return cls(jnp.asarray(steps, jnp.float32), jnp.asarray(np.stack(products), jnp.float32))

    @property
    def count(self) -> int:
        """T."""
        return self.steps.shape[0]

    @property
    def size(self) -> int:
        """V."""
        return self.steps.shape[-1]

    @property
    def prior(self) -> Float[Array, "V"]:
        """Chances of a token after all steps, whatever it was: where samples begin."""
        return jnp.mean(self.cumulative[-1], axis=0)

    def index(self, time: PerRow) -> Int[Array, "B"]:
        """The number of steps that have been taken at a time, 0 .. T."""
        return jnp.round(time * self.count).astype(jnp.int32)

    def noised(self, start: Chances, time: PerRow) -> Chances:
        """q(x_t): tokens with these chances, after the steps up to a time."""
        taken = self.index(time)
        matrix = self.cumulative[jnp.maximum(taken - 1, 0)]
        moved = _product("bwx,bxy->bwy", start, matrix)
        return jnp.where((taken == 0)[:, None, None], start, moved)

    def reached(self, noisy: WindowTokens, time: PerRow, earlier: PerRow) -> Chances:
        """q(x_t = noisy | x_s = y) for every y, where s is the earlier time."""
        last, first = self.index(time), self.index(earlier)
        start = jax.nn.one_hot(noisy, self.size, dtype=self.steps.dtype)

        def back(taken, chances):
            at = jnp.maximum(last - 1 - taken, 0)  # the step that is undone in each row
            before = _product("bwy,bxy->bwx", chances, self.steps[at])
            return jnp.where((last - taken > first)[:, None, None], before, chances)

        return jax.lax.fori_loop(0, jnp.max(last - first), back, start)

    def log_posterior(
        self,
        start: Chances,
        noisy: WindowTokens,
        time: PerRow,
        earlier: PerRow,
        eps: float | Array = 0.0,
    ) -> Chances:
        """log q(x_s | x_t) up to a constant, for clean tokens of these chances.

        The sum over clean tokens of q(x_t | x_s) q(x_s | x_0), which is what D3PM predicts; where
        s = 0 the chances of the clean tokens themselves. The reference adds eps = 1e-6 to both
        factors, so that nothing is impossible; 0 is exact.
        """
        start = precise(start)
        both = safe_log(self.reached(noisy, time, earlier) + eps)
        both = both + safe_log(self.noised(start, earlier) + eps)
        at_start = (self.index(earlier) == 0)[:, None, None]
        return jnp.where(at_start, safe_log(start), both)


def linear_betas(count: int, first: float, last: float) -> np.ndarray:
    """Chances of noise that grow evenly from step to step (D3PM's for Gaussian noise).

    >>> linear_betas(3, 0.1, 0.3).tolist()
    [0.1, 0.2, 0.3]
    """
    return np.linspace(first, last, whole("count", count))


def cosine_betas(count: int) -> np.ndarray:
    """Hoogeboom et al.'s cosine schedule (D3PM's for uniform noise).

    >>> cosine_betas(4).round(3).tolist()
    [0.08, 0.236, 0.459, 0.999]
    """
    at = np.arange(whole("count", count) + 1, dtype=np.float64) / count
    left = np.cos((at + 0.008) / 1.008 * np.pi / 2)
    return np.minimum(1 - left[1:] / left[:-1], 0.999)


def harmonic_betas(count: int) -> np.ndarray:
    """1/T, 1/(T-1) .. 1: noise that grows evenly in time (D3PM's "jsd", for absorbing noise).

    >>> harmonic_betas(4).round(2).tolist()
    [0.25, 0.33, 0.5, 1.0]
    """
    return 1 / np.linspace(whole("count", count), 1, count)


def absorbing(betas: Betas, size: int, state: int) -> np.ndarray:
    """A token becomes `state`, any class (D3PM's is size // 2), with chance beta, and stays so.

    >>> absorbing([0.25], 3, state=1)[0].tolist()
    [[0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [0.0, 0.25, 0.75]]
    """
    betas = _betas(betas)
    whole("state", state, at_least=0, at_most=size - 1)
    return (1 - betas) * np.eye(size) + betas * (np.arange(size) == state)


def uniform(betas: Betas, size: int, bands: int | None = None) -> np.ndarray:
    """A token becomes any other with chance beta / size each, at most `bands` away if given.

    >>> uniform([0.3], 3, bands=1)[0].round(2).tolist()
    [[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.1, 0.9]]
    """
    flat = np.broadcast_to(_betas(betas) / size, (len(betas), size, size))
    return _with_diagonal(flat, bands)


def gaussian(
    betas: Betas, size: int, bands: int | None = None, *, pixel_spacing: bool = False
) -> np.ndarray:
    """Near tokens are likelier: weights exp(-v² / beta), v the distance of values in [-1, 1].

    Doubly stochastic, so that all tokens are alike at the end.

    >>> gaussian([0.5], 5)[0, 2].round(2).tolist()  # v = 0.5 between neighbours
    [0.05, 0.24, 0.41, 0.24, 0.05]

    Args:
      betas: (T,) twice the variance of a step.
      size: the number of tokens, which stand for evenly spaced values.
      bands: how far a step may go, all the way by default.
      pixel_spacing: computes v as the reference does, right for 256 values only: with fewer
        a step hardly moves at all.
    """
    spacing = 2 * 255 / (size - 1) ** 2 if pixel_spacing else 2 / (size - 1)
    reach = size - 1 if bands is None else whole("bands", bands, at_most=size - 1)
    values = spacing * np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / _betas(betas)[:, 0])  # largest in the middle: exp(0)
    weights = weights / weights.sum(axis=-1, keepdims=True)
    distance = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    return _with_diagonal(weights[:, reach + np.minimum(distance, reach)], reach)


def _product(axes: str, left: Array, right: Array) -> Array:
    """In full float32 on every device: chances are multiplied again and again."""
    return jnp.einsum(axes, left, right, precision=jax.lax.Precision.HIGHEST)


def _with_diagonal(matrices: np.ndarray, bands: int | None) -> np.ndarray:
    """The same off the diagonal, as far as the bands go; on it what makes rows sum to 1."""
    size = matrices.shape[-1]
    distance = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    near = (distance > 0) & (distance <= (size if bands is None else whole("bands", bands)))
    matrices = np.where(near, matrices, 0)
    return matrices + (1 - matrices.sum(axis=-1, keepdims=True)) * np.eye(size)


def _betas(betas: Betas) -> np.ndarray:
    """(T, 1, 1)"""
    betas = np.asarray(betas, np.float64)
    rule = "betas must be chances above 0, one for each step"
    right = betas.ndim == 1 and betas.size > 0 and bool(np.all((betas > 0) & (betas <= 1)))
    require(right, rule, betas.tolist(), "see linear_betas, cosine_betas and harmonic_betas")
    return betas[:, None, None]
