"""How much noise there is at a time t: the total σ(t), and the rate σ'(t) at which it grows.

Under a total noise σ a token has been replaced with the chance 1 - e^-σ. Networks that are told
the noise are told σ, never t; samplers and losses ask the same schedule, so that all agree.
"""

import dataclasses
import math
from typing import TypeAlias

import jax.numpy as jnp
from jax import Array

from sake_jax.checks import require

STEPS = ("tweedie", "euler")
"""Ways to go from t to s: by the exact posterior at both ends, or by the rate at t."""


@dataclasses.dataclass(frozen=True)
class LogLinear:
    """By time t a token has been replaced with the chance (1 - eps) t (MDLM, UDLM, SEDD, RADD).

    >>> [round(float(LogLinear().total(jnp.float32(t))), 2) for t in (0.5, 1.0)]
    [0.69, 6.91]
    """

    eps: float = 1e-3
    """At t = 1 a token survives with this probability."""

    def __post_init__(self):
        require(0 <= self.eps < 1, "eps must be from 0 to below 1", self.eps, "use 1e-3")

    def total(self, time: Array) -> Array:
        """σ(t) = -log(1 - (1 - eps) t)."""
        return -jnp.log1p(-(1 - self.eps) * time)

    def rate(self, time: Array) -> Array:
        """σ'(t)."""
        return (1 - self.eps) / (1 - (1 - self.eps) * time)


@dataclasses.dataclass(frozen=True)
class Geometric:
    """The total noise grows from `low` to `high` by equal factors in equal times (SEDD).

    >>> [round(float(Geometric(0.01, 4.0).total(jnp.float32(t))), 2) for t in (0.0, 0.5, 1.0)]
    [0.01, 0.2, 4.0]
    """

    low: float = 1e-4
    """σ at t = 0; the last step of a sampler undoes it too."""
    high: float = 20.0
    """σ at t = 1."""

    def __post_init__(self):
        rule, remedy = "low and high must be 0 < low < high", "see sigma_min and sigma_max"
        require(0 < self.low < self.high, rule, (self.low, self.high), remedy)

    def total(self, time: Array) -> Array:
        """σ(t) = low^(1 - t) high^t."""
        return jnp.exp(math.log(self.low) + time * math.log(self.high / self.low))

    def rate(self, time: Array) -> Array:
        """σ'(t)."""
        return math.log(self.high / self.low) * self.total(time)


NoiseLevels: TypeAlias = LogLinear | Geometric
USUAL = LogLinear()
"""What a network has whose config names no other."""


def log_expm1(x: Array) -> Array:
    """log(e^x - 1) for x > 0, where e^x may overflow or be all but 1.

    >>> [round(float(log_expm1(jnp.float32(x))), 3) for x in (1e-6, 1.0, 200.0)]
    [-13.816, 0.541, 200.0]
    """
    return x + jnp.log(-jnp.expm1(-x))


def noise_removed(noise: NoiseLevels, time: Array, next_time: Array) -> Array:
    """σ(t) - σ(s); all of σ(t) where s = 0, since clean text has none.

    >>> float(noise_removed(Geometric(0.5, 4.0), jnp.float32(1), jnp.float32(0)))
    4.0
    """
    left = jnp.where(next_time > 0, noise.total(next_time), 0)
    return noise.total(time) - left


def unmask_chance(noise: NoiseLevels, step: str, time: Array, next_time: Array) -> Array:
    """The chance that a masked token is unmasked from t to s; 1 where s = 0.

    "tweedie" is 1 - m_s / m_t with m = 1 - e^-σ, the chance of a mask; "euler" is the rate at t
    times the time, (t - s) σ'(t) / (e^σ(t) - 1).

    >>> t, s = jnp.float32(0.8), jnp.float32(0.6)
    >>> round(float(unmask_chance(LogLinear(), "tweedie", t, s)), 4)
    0.25
    """
    total = noise.total(time)
    if step == "euler":
        chance = (time - next_time) * noise.rate(time) / jnp.expm1(total)
    else:
        # 1 - m_s / m_t, where both may be so close to 1 that their ratio would be rounding.
        left = noise.total(next_time)
        chance = jnp.exp(-left) * jnp.expm1(left - total) / jnp.expm1(-total)
    return jnp.where(next_time > 0, chance, 1)
