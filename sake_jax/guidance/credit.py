"""Credit for tokens that were the likeliest at earlier steps."""

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.checks import number
from sake_jax.core import Guidance
from sake_jax.node import Node
from sake_jax.typing import Logits, Number


class Earned(Node):
    """What is carried from step to step."""

    credit: Logits
    window_start: Array
    """() whose window it is about: another block begins without credit."""


class Credit(Guidance):
    weight: Number
    decay: Number
    power: Number

    def init(self, ctx):
        batch, width, _ = ctx.rows.shape
        nothing = jnp.zeros((batch, width, ctx.tables.output.shape[0]))
        return Earned(nothing, ctx.view.window_start)

    def apply(self, logits, psi, state, ctx):
        chances = jax.nn.softmax(logits)
        largest = jnp.max(chances, axis=-1, keepdims=True)
        best = jnp.argmax(chances, axis=-1)[..., None] == jnp.arange(logits.shape[-1])[None, None]
        same = state.window_start == ctx.view.window_start
        kept = jnp.where(same, ctx.number(self.decay) * state.credit, 0)
        credit = kept + jnp.where(best, largest ** ctx.number(self.power), 0)
        credit = jnp.where(ctx.open[..., None], credit, 0)
        guided = logits + ctx.number(self.weight) * jnp.log1p(credit)
        return guided, Earned(credit, ctx.view.window_start), None


def credit(weight: Number = 0.7, *, decay: Number = 0.8, power: Number = 0.2) -> Credit:
    """Makes a token likelier that has been the likeliest at its position for some steps, so that
    `reveal.threshold` writes it sooner (CreditDecoding, Wang et al. 2025).

    With v the likeliest token of position i and p its probability, credit and logits are

        C_iv ← decay · C_iv + p^power,    C_iw ← decay · C_iw for all others,
        logits_iv + weight · log(1 + C_iv).

    A new block begins without credit. 0 changes nothing. It carries an array of the logits' size.

    >>> import sake_jax as sj
    >>> bold = sj.masked(
    ...     sj.testing.ToyDenoiser(), length=8, guidance=credit(), reveal=sj.reveal.threshold(0.9)
    ... )

    Args:
      weight: of the credit.
      decay: what is left of it after a step.
      power: of the probability; below 1, unsure tokens earn nearly as much as sure ones.
    """
    return Credit(
        number("weight", weight, at_least=0),
        number("decay", decay, at_least=0, at_most=1),
        number("power", power, at_least=0),
    )
