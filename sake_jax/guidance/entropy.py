"""Proposition 1 as an instrument: how guidance changes the entropy of a distribution.

For the family P_γ ∝ P_base exp(γ ψ) the entropy's slope is

    dH/dγ = -Cov_{P_γ}[log P_γ, ψ],   at γ = 0:   -Cov_{P_base}[z, ψ].

A signal that agrees with the logits sharpens, one that opposes them flattens. All
functions work on the last axis.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sake_jax.checks import number


def shannon_entropy(logits: Float[Array, "*N V"]) -> Float[Array, "*N"]:
    """Shannon entropy in nats of softmax(logits).

    >>> round(float(shannon_entropy(jnp.zeros(2))), 4)  # of a fair coin: log 2
    0.6931
    """
    log_p = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.where(log_p > -1e4, jnp.exp(log_p) * log_p, 0), axis=-1)


def kl_divergence(logits: Float[Array, "*N V"], base: Float[Array, "*N V"]) -> Float[Array, "*N"]:
    """KL(softmax(logits) || softmax(base)) in nats.

    >>> fair, sure = jnp.zeros(2), jnp.array([100.0, 0.0])
    >>> round(float(kl_divergence(sure, fair)), 4), float(kl_divergence(fair, fair))
    (0.6931, 0.0)
    """
    log_p, log_q = jax.nn.log_softmax(logits), jax.nn.log_softmax(base)
    return jnp.sum(jnp.where(log_p > -1e4, jnp.exp(log_p) * (log_p - log_q), 0), axis=-1)


def expectation(logits: Float[Array, "*N V"], values: Float[Array, "*N V"]) -> Float[Array, "*N"]:
    """The mean of `values` under softmax(logits); values of probability 0 do not count."""
    p = jax.nn.softmax(logits)
    return jnp.sum(jnp.where(p > 0, p * values, 0), axis=-1)


def covariance(
    logits: Float[Array, "*N V"], a: Float[Array, "*N V"], b: Float[Array, "*N V"]
) -> Float[Array, "*N"]:
    """Cov[a, b] under softmax(logits).

    >>> fair, signal = jnp.zeros(2), jnp.array([1.0, -1.0])
    >>> float(covariance(fair, signal, 3 * signal))
    3.0
    """
    a = a - expectation(logits, a)[..., None]
    b = b - expectation(logits, b)[..., None]
    return expectation(logits, a * b)


def correlation(
    logits: Float[Array, "*N V"], a: Float[Array, "*N V"], b: Float[Array, "*N V"]
) -> Float[Array, "*N"]:
    """Corr[a, b] under softmax(logits); 0 where either does not vary.

    >>> fair, signal = jnp.zeros(2), jnp.array([1.0, -1.0])
    >>> float(correlation(fair, signal, -3 * signal))  # they pull in opposite directions
    -1.0
    """
    spread = jnp.sqrt(covariance(logits, a, a) * covariance(logits, b, b))
    return jnp.where(spread > 1e-20, covariance(logits, a, b) / jnp.maximum(spread, 1e-20), 0)


def entropy_slope(
    logits: Float[Array, "*N V"], psi: Float[Array, "*N V"], strength: float | Array = 0.0
) -> Float[Array, "*N"]:
    """dH[P_γ]/dγ at γ = `strength`, for P_γ = softmax(logits + γ psi) (Proposition 1).

    >>> import jax.numpy as jnp
    >>> z = jnp.array([2.0, 0.0])
    >>> bool(entropy_slope(z, z) < 0)  # a signal along the logits sharpens
    True
    """
    guided = logits + strength * psi
    return -covariance(guided, guided, psi)


def contrast_terms(
    unconditional: Float[Array, "*N V"], conditional: Float[Array, "*N V"]
) -> tuple[Float[Array, "*N"], Float[Array, "*N"]]:
    """The two competing terms of D-CFG's slope, (Var[z_∅], Cov[z_∅, z_c]) under P_∅.

    With ψ = z_c - z_∅ the entropy slope is their difference, Var - Cov.
    """
    variance = covariance(unconditional, unconditional, unconditional)
    return variance, covariance(unconditional, unconditional, conditional)


def temperature_strength(temperature: float | Array) -> float | Array:
    """The γ = 1/τ - 1 at which the signal ψ = z is the same as temperature τ.

    >>> temperature_strength(0.5)
    1.0
    """
    number("temperature", temperature, above=0)
    return 1 / temperature - 1
