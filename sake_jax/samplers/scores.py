"""Processes of networks that predict concrete scores, s(y) = p_t(y) / p_t(x) (SEDD).

A score says how fast x turns into y when time runs backwards, so that all scores of a position
together say whether it moves at all, and their shares say where to. Guidance acts on the shares:
`keep_rate` gives guided scores the sum that the network's own had. That is the paper's normalised
transition, P(y | x) = s(y) / Σ s(z) over z ≠ x: what is guided is where a token goes, not when.
(Guidances that act on log q itself, `classifier_based` and `classifier_free` in its posterior form,
have the last word on both, as their papers define them.)
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import one_of
from sake_jax.core import LOWEST
from sake_jax.models import log_scores
from sake_jax.node import Node
from sake_jax.noise_levels import STEPS, LogLinear, NoiseLevels, log_expm1, noise_removed
from sake_jax.precision import safe_log
from sake_jax.samplers.processes import mask_column
from sake_jax.typing import Logits
from sake_jax.view import View

GRAPHS = ("absorb", "uniform")
LARGEST = 80.0
"""A log-score above this would overflow; those of real networks stay below log(V / σ)."""


class Score(Node):
    """What scores of both kinds of noise have in common; see `concrete_score`."""

    decides: ClassVar[bool] = True
    noise: NoiseLevels = struct.field(pytree_node=False, default=LogLinear())
    step: str = struct.field(pytree_node=False, default="tweedie")
    scaled: bool = struct.field(pytree_node=False, default=False)

    def clean(self, logits: Logits, view: View) -> Logits:
        """Log-scores from what the head gives; the token that stands is no candidate.

        Its score is 1 by definition. Were it one, a filter could keep it and nothing else, and
        guidance would say that nothing moves.
        """
        sigma = self.noise.total(view.time)
        scores = log_scores(logits, view.window(view.tokens), sigma, scaled=self.scaled)
        return jnp.where(own_column(logits, view), LOWEST, scores)

    def keep_rate(self, logits: Logits, base: Logits, view: View) -> Logits:
        """Guided log-scores with the sum of the base ones, over all tokens but the one that stands.

        Where guidance forbids every other token, nothing moves.
        """
        own = own_column(logits, view)
        logits, base = (jnp.where(own, LOWEST, part) for part in (logits, base))
        total = jax.nn.logsumexp(base, axis=-1, keepdims=True)
        nowhere = jnp.max(logits, axis=-1, keepdims=True) <= LOWEST / 2
        shares = jnp.maximum(jax.nn.log_softmax(logits), LOWEST)
        return jnp.where(own, 0, jnp.where(nowhere, LOWEST, shares + total))


class AbsorbingScore(Score):
    """Scores of masked diffusion: a masked token y appears with the chance G s(y).

    G is e^Δσ - 1 ("tweedie", SEDD's analytic step), or the time times σ'(t) ("euler"). The mask
    stays with what is left, 1 - G Σ s. The reference gets the same number as a difference of
    e^Δσ Σ s and its like, which is rounding where Δσ is large.
    """

    revises: ClassVar[bool] = False

    def clean(self, logits: Logits, view: View) -> Logits:
        """Log-scores; the mask is no candidate."""
        return jnp.where(mask_column(logits, view), LOWEST, super().clean(logits, view))

    def log_q(self, logits: Logits, view: View) -> Logits:
        is_mask = mask_column(logits, view)
        tokens = jnp.where(is_mask, LOWEST, logits) + self._log_gain(view)
        left = 1 - jnp.exp(jax.nn.logsumexp(tokens, axis=-1, keepdims=True))
        left = jnp.where(at_the_end(view), 0, left)
        return jnp.where(is_mask, safe_log(left), tokens)

    def _log_gain(self, view: View) -> Array:
        """log G, so that nothing large is multiplied by something small."""
        gain = log_expm1(noise_removed(self.noise, view.time, view.next_time))
        if self.step == "euler":
            slope = jnp.log((view.time - view.next_time) * self.noise.rate(view.time))
            gain = jnp.where(view.next_time > 0, slope, gain)
        return gain[:, None, None]


class UniformScore(Score):
    """Scores of uniform noise: every token may become any other, again and again.

    With e = e^-Δσ the "tweedie" step (SEDD's analytic one) draws y ≠ x with a chance proportional
    to (s(y) - (1 - e) m) (1 - e) / V, where m is the mean of all scores, and keeps x with
    (1 - (1 - e) m) (e + (1 - e) / V). Scores are close to 1 where there is much noise, so the
    differences are taken of s - 1. "euler" draws y with (time) σ'(t) s(y) / V. Chances below 0,
    which imprecise scores have, are 0.
    """

    revises: ClassVar[bool] = True

    def log_q(self, logits: Logits, view: View) -> Logits:
        size, own = logits.shape[-1], own_column(logits, view)
        above = jnp.where(own, 0, jnp.expm1(jnp.minimum(logits, LARGEST)))  # s - 1
        kept = jnp.exp(-noise_removed(self.noise, view.time, view.next_time))[:, None, None]
        mean = jnp.mean(above, axis=-1, keepdims=True)
        moved = above - mean + kept * (1 + mean)
        exact = moved * jnp.where(own, kept + (1 - kept) / size, (1 - kept) / size)
        if self.step == "tweedie":
            return safe_log(exact)
        slope = ((view.time - view.next_time) * self.noise.rate(view.time))[:, None, None] / size
        others = jnp.where(own, 0, slope * (above + 1))
        euler = jnp.where(own, 1 - jnp.sum(others, axis=-1, keepdims=True), others)
        return safe_log(jnp.where(at_the_end(view), exact, euler))


def concrete_score(
    graph: str = "absorb",
    *,
    noise: NoiseLevels | None = None,
    step: str = "tweedie",
    scaled: bool = False,
) -> AbsorbingScore | UniformScore:
    """The process of a network that predicts log-scores (SEDD, Lou et al. 2024).

    `ancestral` makes it for a loaded model, from what its config says. The last step, to s = 0,
    takes all noise away, in one exact step whatever `step` is. Guidance keeps the sum of a
    position's scores, and so its chance to move: it changes where to.

    >>> import sake_jax as sj
    >>> denoiser, plan = sj.testing.ToyDenoiser(), sj.descent(8, 16, final="draw")
    >>> process = concrete_score(noise=sj.Geometric(1e-3, 5.0), step="euler")
    >>> sampler = sj.sampler(denoiser, plan, process=process)

    Args:
      graph: "absorb" for noise that masks tokens, "uniform" for noise that replaces them.
      noise: how much of it there is at a time, `LogLinear()` by default; the network's own.
      step: "tweedie", exact if scores are (SEDD's analytic predictor), or "euler".
      scaled: whether the network's outputs are scores up to a factor; see `log_scores`.
    """
    one_of("graph", graph, GRAPHS)
    kind = AbsorbingScore if graph == "absorb" else UniformScore
    return kind(noise or LogLinear(), one_of("step", step, STEPS), scaled)


def own_column(logits: Logits, view: View) -> Array:
    """(B, W, V) which entry is the token that stands there now."""
    return jnp.arange(logits.shape[-1])[None, None, :] == view.window(view.tokens)[..., None]


def at_the_end(view: View) -> Array:
    """(B, 1, 1) whether the step leads to clean text."""
    return (view.next_time <= 0)[:, None, None]
