"""Guidance that keeps the samples of a prompt from becoming one and the same text."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from sake_jax.checks import number, require
from sake_jax.core import Context, Guidance
from sake_jax.typing import Leaf, Logits, Number

LEAST = 1e-9
"""Two positions that cannot agree count as agreeing with this chance, so that logarithms stay
finite."""
HIGHEST = jax.lax.Precision.HIGHEST


class Distinct(Guidance):
    """See `distinct`.

    >>> import sake_jax as sj
    >>> isinstance(sj.distinct(), Distinct), sj.distinct().couples_samples
    (True, True)
    """

    strength: Number
    foresight: Number
    reach: Leaf

    @property
    def couples_samples(self):
        return True

    def apply(self, logits, psi, state, ctx):
        meetings = self.meetings(logits, ctx)
        moved = logits - ctx.number(self.strength) * jnp.log1p(meetings)
        return jnp.where(ctx.open[..., None], moved, logits), state, None

    def meetings(self, logits: Logits, ctx: Context) -> Logits:
        """(B, W, V) how many of the other samples are expected to be the same text, if this token
        is written here."""
        samples, rows = ctx.view.samples, logits.shape[0]
        rule = "telling samples apart must have 2 samples of each prompt or more"
        whole = samples > 1 and rows % samples == 0
        require(whole, rule, (rows, samples), "raise samples, or keep prompts whole")

        def by_prompt(of_rows: Array) -> Array:  # (Q·M, ...) -> (Q, M, ...)
            return of_rows.reshape(-1, samples, *of_rows.shape[1:])

        # What a sample is at a position: its token where one is written, else a distribution.
        written = jax.nn.one_hot(ctx.view.window(ctx.view.tokens), logits.shape[-1])
        chances = jnp.where(ctx.open[..., None], jax.nn.softmax(logits), written)
        chances = by_prompt(chances.astype(jnp.float32))
        agreement = self._agreement(chances, by_prompt, ctx)
        meet = jnp.exp(jnp.einsum("qijc,wc->qijw", agreement, self._weights(ctx)))
        others = 1 - jnp.eye(samples, dtype=meet.dtype)
        meet = meet * others[None, :, :, None]
        expected = jnp.einsum("qijw,qjwv->qiwv", meet, chances, precision=HIGHEST)
        return expected.reshape(logits.shape)

    def _agreement(self, chances: Array, by_prompt, ctx: Context) -> Float[Array, "Q M M L"]:
        """The logarithm of the chance that two samples say the same at a column, raised to
        `foresight` where one of them has not yet written it."""
        view = ctx.view
        tokens, is_open = by_prompt(view.tokens), by_prompt(view.open & view.attend)
        # What was given, and padding, is no part of what samples say.
        said = by_prompt(view.attend & ~view.open & ~view.prompt)
        differ = (tokens[:, :, None] != tokens[:, None, :]) & _both(said)
        # Outside of the window nothing is predicted: what is not yet written there may agree.
        columns = jnp.where(differ, jnp.log(LEAST), 0.0)
        equal = jnp.einsum("qiwv,qjwv->qijw", chances, chances, precision=HIGHEST)
        here = jnp.log(jnp.clip(equal, LEAST, 1.0))
        foresight = jnp.broadcast_to(ctx.number(self.foresight, 1), view.tokens.shape[:1])
        power = jnp.where(_both(said), 1.0, by_prompt(foresight)[:, :, None, None])
        power = jnp.where(_both(said | is_open), power, 0.0)
        start = view.window_start
        here = here * jax.lax.dynamic_slice_in_dim(power, start, view.width, axis=3)
        return jax.lax.dynamic_update_slice_in_dim(columns, here, start, axis=3)

    def _weights(self, ctx: Context) -> Float[Array, "W L"]:
        """How much agreement at a column counts for a position of the window: not at all at its own
        column, less with the distance if there is a `reach`."""
        columns = jnp.arange(ctx.view.tokens.shape[1])
        own = ctx.view.window_start + jnp.arange(ctx.view.width)
        away = jnp.square(columns[None, :] - own[:, None]).astype(jnp.float32)
        near = jnp.ones_like(away) if self.reach is None else jnp.exp(-away / (2 * self.reach**2))
        return jnp.where(away > 0, near, 0.0)


def _both(flags: Bool[Array, "Q M L"]) -> Bool[Array, "Q M M L"]:
    """Whether it is so of both of two samples."""
    return flags[:, :, None] & flags[:, None, :]


def distinct(
    strength: Number = 1.0, *, foresight: Number = 0.1, reach: float | None = None
) -> Distinct:
    """Samples of a prompt keep from becoming the same text: z_iv - γ log(1 + n_iv).

    n_iv is the number of the other samples j that are expected to end as the same text as sample i
    if it writes v here: Σ_j p_j(v) Π_c a_ij(c)^β over the other columns c, where a_ij(c) is the
    chance that both say the same there, Σ_v p_i(v) p_j(v), with p the token that is written or the
    distribution that is predicted; β is `foresight` at columns that one of them has not written
    yet, and 1 at the others. A sample whose text differs from all others already is left alone.

    With β = 1 it is the gradient of the expected number of pairs of equal texts, which is M²/2
    times what the order-2 Rényi entropy of the samples is the logarithm of: SAKE's objective, with
    whole texts in the place of rows. Dividing chances by (1 + n)^γ shares samples out among tokens
    as seats are among parties: with γ = 1, in proportion to their chances.

    >>> import sake_jax as sj
    >>> sampler = sj.masked(
    ...     sj.testing.ToyDenoiser(), length=8, guidance=sj.distinct(1.0), draw=sj.temperature(0.3)
    ... )
    >>> sampler.couples_samples  # so `generate` keeps the samples of a prompt together
    True

    Args:
      strength: γ.
      foresight: β, from 0, as if what is not written will agree, to 1, as if every position were
        drawn without regard to the others, so that long texts hardly ever meet.
      reach: how far, in columns, agreement counts; samples then keep from saying the same thing at
        the same place. None: the whole text.
    """
    return Distinct(
        number("strength", strength),
        number("foresight", foresight, at_least=0, at_most=1),
        None if reach is None else number("reach", reach, above=0, schedule=False),
    )
