"""Guidance that keeps the samples of a prompt from becoming one and the same text."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sake_jax.checks import number, require
from sake_jax.core import Context, Guidance
from sake_jax.typing import Logits, Number

HIGHEST = jax.lax.Precision.HIGHEST
LARGEST = 40.0
"""Of an exponent that is one factor of a term; two of them stay inside float32."""


class Distinct(Guidance):
    """See `distinct`.

    >>> import sake_jax as sj
    >>> isinstance(sj.distinct(), Distinct), sj.distinct().couples_samples
    (True, True)
    """

    strength: Number
    bandwidth: Number

    @property
    def couples_samples(self):
        return True

    def apply(self, logits, psi, state, ctx):
        moved = logits - ctx.number(self.strength) * jnp.log1p(self.alike(logits, ctx))
        return jnp.where(ctx.open[..., None], moved, logits), state, None

    def alike(self, logits: Logits, ctx: Context) -> Logits:
        """(B, W, V) how many of the other samples are the same text, if this token is written
        here: n of `distinct`."""
        samples, rows = ctx.view.samples, logits.shape[0]
        rule = "telling samples apart must have 2 samples of each prompt or more"
        whole = samples > 1 and rows % samples == 0
        require(whole, rule, (rows, samples), "raise samples, or keep prompts whole")

        def by_prompt(of_rows: Array) -> Array:  # (Q·M, ...) -> (Q, M, ...)
            return of_rows.reshape(-1, samples, *of_rows.shape[1:])

        predicted = jnp.where(ctx.open[..., None], jax.nn.softmax(logits.astype(jnp.float32)), 0)
        counts = by_prompt(written(ctx, logits.shape[-1]) + jnp.sum(predicted, axis=1))
        predicted = by_prompt(predicted)
        bandwidth = jnp.broadcast_to(ctx.number(self.bandwidth, 2), (rows, 1))
        inverse = 1 / jnp.square(by_prompt(bandwidth))  # (Q, M, 1)
        # With v written at a position, a sample's counts are b_i - p_ic + e_v, and the squared
        # distance to b_j is |r|² + 2 r_v + 1 with r = b_i - p_ic - b_j. The part that depends on v
        # is a product of something of i and something of j, so that pairs meet in matrix products.
        apart = self._distances(counts, predicted)
        kernel = jnp.exp(-(apart + 1) * inverse[..., None])  # (Q, M, M, W)
        kernel = kernel * (1 - jnp.eye(samples))[None, :, :, None]
        # Around their mean both factors are moderate, unless a text has a token far more often than
        # the others; it is unlike them then, whatever the factor is.
        middle = jnp.mean(counts, axis=1, keepdims=True)
        scale = 2 * inverse
        theirs = jnp.exp(jnp.clip((counts - middle) * scale, -LARGEST, LARGEST))
        rest = (counts - middle)[:, :, None] - predicted
        mine = jnp.exp(jnp.clip(-rest * scale[:, :, None], -LARGEST, LARGEST))
        expected = mine * jnp.einsum("qijw,qjv->qiwv", kernel, theirs, precision=HIGHEST)
        return expected.reshape(logits.shape)

    def _distances(
        self, counts: Float[Array, "Q M V"], predicted: Float[Array, "Q M W V"]
    ) -> Float[Array, "Q M M W"]:
        """|b_i - p_ic - b_j|², of each position c of sample i."""
        between = jnp.sum(jnp.square(counts[:, :, None] - counts[:, None, :]), axis=-1)
        own = jnp.einsum("qiwv,qiv->qiw", predicted, counts, precision=HIGHEST)
        with_theirs = jnp.einsum("qiwv,qjv->qijw", predicted, counts, precision=HIGHEST)
        size = jnp.sum(jnp.square(predicted), axis=-1)
        across = 2 * (own[:, :, None] - with_theirs) - size[:, :, None]
        return jnp.maximum(between[..., None] - across, 0)


def written(ctx: Context, vocabulary: int) -> Float[Array, "B V"]:
    """How often each row has written each token; what was given, and padding, does not count."""
    view = ctx.view
    said = view.attend & ~view.open & ~view.prompt
    row = jnp.arange(said.shape[0])[:, None]
    return (
        jnp.zeros((said.shape[0], vocabulary), jnp.float32)
        .at[row, view.tokens]
        .add(said.astype(jnp.float32))
    )


def distinct(strength: Number = 1.0, *, bandwidth: Number = 1.0) -> Distinct:
    """Samples of a prompt keep from becoming the same text: z_ic(v) - γ log(1 + n_ic(v)).

    n_ic(v) is how many of the other samples are the same text as sample i if it writes v at c:
    Σ_j exp(-|b_i(c → v) - b_j|² / σ²), where b counts a sample's tokens, those that are written and
    those that are predicted, and b(c → v) has v in the place of what is predicted at c. Texts of
    the same tokens in another order are the same; a sample unlike all others is left alone.

    This is SAKE with a sample's counts in the place of a position's features: Σ_ij of the same
    kernel is what the order-2 Rényi entropy of the samples is the logarithm of, and the gap that v
    makes in it is taken as it is, without a linear approximation. Dividing a token's chance by
    (1 + n)^γ shares samples out among tokens as seats are among parties.

    >>> import sake_jax as sj
    >>> sampler = sj.masked(
    ...     sj.testing.ToyDenoiser(), length=8, guidance=sj.distinct(1.0), draw=sj.temperature(0.15)
    ... )
    >>> sampler.couples_samples  # so `generate` keeps the samples of a prompt together
    True

    Args:
      strength: γ.
      bandwidth: σ, in tokens: texts that differ in one token count as exp(-2/σ²) of the same.
    """
    return Distinct(number("strength", strength), number("bandwidth", bandwidth, above=0))
