"""A cap on how far guidance may move a distribution, in nats."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sake_jax.guidance.entropy import expectation

ITERATIONS = 20
AIM = 0.99
"""Aim a little below the budget, so that rounding does not step over it."""


@jax.custom_jvp
def fraction(
    logits: Float[Array, "*N V"], psi: Float[Array, "*N V"], budget: Float[Array, "*N"]
) -> Float[Array, "*N"]:
    """The largest c in [0, 1] with KL(softmax(logits + c psi) || softmax(logits)) <= budget.

    Along c the distributions are an exponential family, so that
    KL(c) = c E_c[ψ] - log E_0[exp(c ψ)] and KL'(c) = c Var_c[ψ]. The root of
    sqrt(KL) = sqrt(budget) is found by Newton's method (sqrt(KL) is nearly linear near
    zero) inside a bracket, starting at c = sqrt(2 budget / Var_0[ψ]).

    The search itself is not differentiated: where the budget binds, c moves with its arguments as
    KL(c) = budget says, dc = (d budget - dKL) / KL'(c).
    """
    psi = psi - expectation(logits, psi)[..., None]
    target = AIM * budget
    moved = functools.partial(_moved, logits, psi)

    def refine(_, carry):
        c, low, high = carry
        divergence, variance = moved(c)
        low = jnp.where(divergence <= target, jnp.maximum(low, c), low)
        high = jnp.where(divergence > target, jnp.minimum(high, c), high)
        root = jnp.sqrt(divergence)
        newton = c + 2 * root * (jnp.sqrt(target) - root) / jnp.maximum(c * variance, 1e-30)
        inside = (newton > low) & (newton < high)
        between = jnp.where(low > 0, jnp.sqrt(low * high), 0.03 * high)  # bisect the magnitude
        better = jnp.where(inside, newton, between)
        settled = jnp.abs(divergence - target) <= 1e-5 * target
        return jnp.where(settled, c, better), low, high

    zero = jnp.zeros_like(budget)
    one = jnp.ones_like(budget)
    full, _ = moved(one)
    variance = expectation(logits, jnp.square(psi))
    start = jnp.minimum(jnp.sqrt(2 * target / jnp.maximum(variance, 1e-30)), one)
    c, low, _ = jax.lax.fori_loop(0, ITERATIONS, refine, (start, zero, one))
    inside = jnp.where(moved(c)[0] <= budget, c, low)
    return jnp.where(full <= budget, one, inside)


@fraction.defjvp
def _fraction_change(values, changes):
    logits, psi, budget = values
    c = fraction(logits, psi, budget)
    centred = psi - expectation(logits, psi)[..., None]
    moved = functools.partial(_moved, c=c)
    (_, variance), (rise, _) = jax.jvp(moved, (logits, centred), changes[:2])
    change = (AIM * changes[2] - rise) / jnp.maximum(c * variance, 1e-30)
    return c, jnp.where(c < 1, change, 0)


def _moved(
    logits: Float[Array, "*N V"], psi: Float[Array, "*N V"], c: Float[Array, "*N"]
) -> tuple[Float[Array, "*N"], Float[Array, "*N"]]:
    """KL(c) and Var_c[ψ]; psi has mean 0, for the sake of rounding only."""
    tilted = logits + c[..., None] * psi
    log_z = jax.nn.logsumexp(tilted, axis=-1) - jax.nn.logsumexp(logits, axis=-1)
    mean = expectation(tilted, psi)
    variance = expectation(tilted, jnp.square(psi - mean[..., None]))
    return jnp.maximum(c * mean - log_z, 0), variance
