"""A limit on how far any guidance may move a distribution."""

import jax.numpy as jnp

from sake_jax.checks import number, require
from sake_jax.core import Guidance
from sake_jax.guidance import budget
from sake_jax.typing import Number


class Capped(Guidance):
    inner: Guidance
    nats: Number

    @property
    def couples_samples(self):
        return self.inner.couples_samples

    def init(self, ctx):
        return self.inner.init(ctx)

    def push(self, state, ctx):
        return self.inner.push(state, ctx)

    def apply(self, logits, psi, state, ctx):
        guided, state, report = self.inner.apply(logits, psi, state, ctx)
        move = guided - logits
        cap = jnp.broadcast_to(ctx.number(self.nats, 2), logits.shape[:2])
        return logits + budget.fraction(logits, move, cap)[..., None] * move, state, report

    def posterior(self, log_q, logits, psi, state, ctx):
        return self.inner.posterior(log_q, logits, psi, state, ctx)


def capped(guidance: Guidance, nats: Number) -> Capped:
    """A guidance whose move is shortened so that KL(guided || base) stays below `nats` at every
    position.

    For guidances that add a signal to the logits, such as `odd` and `dpp`; what `sake` has as
    `kl_budget`. Filters do not belong inside: they move by any amount.

    >>> import sake_jax as sj
    >>> guidance = sj.capped(sj.odd(sj.linear(16.0, 0.0)), 0.2)

    Args:
      guidance: what is capped, a chain or not. A last word on log q (`posterior`) is not capped.
      nats: the most that it may move.
    """
    rule = "capped must get a Guidance"
    require(isinstance(guidance, Guidance), rule, guidance, "build it with a sake_jax builder")
    rule, remedy = "capped must not hold a form", "chain the form after it"
    require(not guidance.joint, rule, guidance, remedy)
    return Capped(guidance, number("nats", nats, above=0))
