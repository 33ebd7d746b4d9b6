"""Diversity objectives: plain functions `(rows, peers) -> scalar`, larger is more diverse.

`rows` are the window's rows, the ones that are differentiated; `peers` holds everything
they are compared with. Pairwise objectives touch W x L pairs; spectral ones the whole
L x L density matrix and its eigenvalues. An objective of your own is a function of the
same form:

    >>> import jax.numpy as jnp
    >>> def spread(rows, peers):
    ...     return jnp.sum(jnp.square(rows - jnp.mean(peers.rows, axis=0, keepdims=True)))
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sake_jax.checks import number
from sake_jax.guidance.kernels import Peers, collisions, density

Objective = Callable[[Float[Array, "W D"], Peers], Float[Array, ""]]
SMALLEST = 1e-4
"""Eigenvalues of ρ (they sum to 1) are kept above this where a slope is infinite at zero; float32
eigenvalues are good to about 1e-7, so much less would be noise."""
COINCIDE = 1e-5
"""Eigenvalues that are nearer count as one: of their differences float32 has no digits."""


def collision(rows: Float[Array, "W D"], peers: Peers) -> Float[Array, ""]:
    """Σ_i D_i with D_i = -Σ_{j≠i} κ_attn(i, j)² κ(h_i, h_j)²: the paper's per-token objective.

    Its gradient in h_i, the other rows held, is Proposition 4.2's signal. The order-2
    Rényi entropy moves the same way: ∇H_2 = (2 / ‖K ∘ K_attn‖²) ∇D.

    >>> import sake_jax as sj
    >>> guidance = sj.diversity(sj.collision, 0.5)  # what `sake(0.5)` is
    """
    return -jnp.sum(collisions(rows, peers))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _spectral(value: Callable, slope: Callable, matrix: Float[Array, "L L"]) -> Float[Array, ""]:
    """Σ_k value(λ_k) of a symmetric matrix.

    Its gradient is U slope(λ) Uᵀ: unlike the derivative of the eigenvectors, it stays
    finite where eigenvalues coincide, as they do for equal rows.
    """
    return jnp.sum(value(jnp.linalg.eigvalsh(matrix)))


@_spectral.defjvp
def _spectral_change(value, slope, matrices, changes):
    total, gradient = _value_and_gradient(value, slope, *matrices)
    return total, jnp.sum(gradient * changes[0])


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _value_and_gradient(
    value: Callable, slope: Callable, matrix: Float[Array, "L L"]
) -> tuple[Float[Array, ""], Float[Array, "L L"]]:
    """Σ_k value(λ_k) and U slope(λ) Uᵀ, from one decomposition."""
    eigenvalues, vectors = jnp.linalg.eigh(matrix)
    return jnp.sum(value(eigenvalues)), (vectors * slope(eigenvalues)[None, :]) @ vectors.T


@_value_and_gradient.defjvp
def _gradient_change(value, slope, matrices, changes):
    """U (Γ ∘ Uᵀ E U) Uᵀ with Γ_kl = (f(λ_k) - f(λ_l)) / (λ_k - λ_l), which is f' where they
    coincide (Daleckii and Krein), f the slope: for those who differentiate through guidance."""
    (matrix,), (change,) = matrices, changes
    total, gradient = _value_and_gradient(value, slope, matrix)
    eigenvalues, vectors = jnp.linalg.eigh(matrix)
    values, slopes = slope(eigenvalues), jax.vmap(jax.grad(slope))(eigenvalues)
    gaps = eigenvalues[:, None] - eigenvalues[None, :]
    rises = values[:, None] - values[None, :]
    between = (slopes[:, None] + slopes[None, :]) / 2
    apart = jnp.abs(gaps) > COINCIDE
    steep = jnp.where(apart, rises / jnp.where(apart, gaps, 1), between)
    inside = vectors.T @ ((change + change.T) / 2) @ vectors
    rise = jnp.sum(gradient * change), vectors @ (steep * inside) @ vectors.T
    return (total, gradient), rise


@dataclasses.dataclass(frozen=True)
class Renyi:
    """See `renyi`. Two of the same order are equal, so that they are one program."""

    order: float

    @property
    def floor(self) -> float:
        return SMALLEST if self.order < 1 else 0.0

    def __call__(self, rows: Float[Array, "W D"], peers: Peers) -> Float[Array, ""]:
        matrix = density(rows, peers)
        return jnp.log(self.power(matrix)) / (1 - self.order)

    def power(self, matrix: Float[Array, "L L"]) -> Any:
        """Tr ρ^α."""
        if self.order == 2:  # needs no eigenvalues
            return jnp.sum(jnp.square(matrix))
        return _spectral(self.value, self.slope, matrix)

    def value(self, eigenvalues):  # padding has eigenvalues of zero, which must not count
        powers = jnp.maximum(eigenvalues, self.floor) ** self.order
        return jnp.where(eigenvalues > self.floor, powers, 0.0)

    def slope(self, eigenvalues):
        return self.order * jnp.maximum(eigenvalues, self.floor) ** (self.order - 1)


def renyi(order: float) -> Objective:
    """The Rényi entropy H_α(ρ) = log(Tr ρ^α) / (1 - α), α > 0; α = 1 is `von_neumann`.

    exp(H_α) is the Vendi score of that order, an effective number of distinct rows;
    for α = 2 it is the RKE score.

    >>> import sake_jax as sj
    >>> guidance = sj.diversity(sj.renyi(0.5), 1.0)
    >>> sj.renyi(1.0) is sj.von_neumann
    True
    """
    number("order", order, above=0, schedule=False)
    return von_neumann if order == 1 else Renyi(order)


def von_neumann(rows: Float[Array, "W D"], peers: Peers) -> Float[Array, ""]:
    """-Tr ρ log ρ, the logarithm of the Vendi score.

    >>> import sake_jax as sj
    >>> guidance = sj.diversity(sj.von_neumann, 1.0)
    """
    return spectral_entropy(density(rows, peers))


def spectral_entropy(matrix: Float[Array, "L L"]) -> Float[Array, ""]:
    """-Tr ρ log ρ of a symmetric matrix of trace one, with finite slopes at equal rows."""
    return _spectral(_von_neumann, _von_neumann_slope, matrix)


def _von_neumann(eigenvalues):
    kept = jnp.maximum(eigenvalues, SMALLEST)
    return -jnp.where(eigenvalues > SMALLEST, kept * jnp.log(kept), 0.0)


def _von_neumann_slope(eigenvalues):
    return -jnp.log(jnp.maximum(eigenvalues, SMALLEST)) - 1


@dataclasses.dataclass(frozen=True)
class LogDeterminant:
    """See `log_determinant`."""

    ridge: float

    def __call__(self, rows: Float[Array, "W D"], peers: Peers) -> Float[Array, ""]:
        return _spectral(self.value, self.slope, density(rows, peers))

    def value(self, eigenvalues):
        return jnp.log(jnp.maximum(eigenvalues, 0) + self.ridge)

    def slope(self, eigenvalues):
        return 1 / (jnp.maximum(eigenvalues, 0) + self.ridge)


def log_determinant(ridge: float = 1e-3) -> Objective:
    """log det(ρ + ridge·I): a determinantal point process over the rows.

    >>> import sake_jax as sj
    >>> guidance = sj.diversity(sj.log_determinant(ridge=1e-2), 1.0)
    """
    return LogDeterminant(number("ridge", ridge, above=0, schedule=False))
