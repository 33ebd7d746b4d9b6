"""Normalisations: how large a diversity signal is, whatever the model's own scale.

One of your own is a function `(variance, rounding, redundancy, ctx) -> (B,)` that gives the factor
for each row's signal:

- variance (B,): Var_y[ψ_y] over the vocabulary, mean over the row's open positions
- rounding (B,): what of it rounding alone may have left
- redundancy (B, W): how much kernel mass other rows share with each position

>>> def no_larger_than_one(variance, rounding, redundancy, ctx):
...     return jnp.minimum(1.0, 1 / jnp.sqrt(variance + rounding + 1e-30))
>>> import sake_jax as sj
>>> guidance = sj.sake(1.0, normalize=no_larger_than_one)
"""

from collections.abc import Callable

import jax.numpy as jnp

from sake_jax.core import Context
from sake_jax.info import mean_over
from sake_jax.typing import PerPosition, PerRow

Normalize = Callable[[PerRow, PerRow, PerPosition, Context], PerRow]

ALREADY_DIVERSE = 1e-2
"""Below this redundancy a normalised signal fades out: a diverse sequence is left alone."""


def unit_rms(variance: PerRow, rounding: PerRow, redundancy: PerPosition, ctx: Context) -> PerRow:
    """Unit size over a row's open positions, fading out where no rows are near each other."""
    fade = jnp.minimum(mean_over(redundancy, ctx.open) / ALREADY_DIVERSE, 1)
    return fade / jnp.sqrt(variance + rounding + 1e-30)


NORMALIZATIONS: dict[str, Normalize | None] = {"none": None, "rms": unit_rms}
"""By their short names; None leaves the gradient's own scale."""
