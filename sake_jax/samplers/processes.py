"""How noise is undone: from logits of the clean token to log q(x_s | x_t).

`view.time` is t and `view.next_time` is s < t. A token has been replaced by noise by
time t with the chance m_t = (1 - eps) t, the log-linear schedule of MDLM and UDLM.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import number, one_of, require
from sake_jax.core import LOWEST
from sake_jax.node import Node
from sake_jax.noise_levels import STEPS, LogLinear, NoiseLevels, unmask_chance
from sake_jax.precision import safe_log
from sake_jax.typing import Logits, Number
from sake_jax.view import View


class Identity(Node):
    """The draw is the clean token itself; what is kept is the reveal rule's choice (LLaDA)."""

    revises: ClassVar[bool] = False
    decides: ClassVar[bool] = False
    draws_mask: bool = struct.field(pytree_node=False, default=True)

    def clean(self, logits: Logits, view: View) -> Logits:
        return logits if self.draws_mask else jnp.where(mask_column(logits, view), LOWEST, logits)

    def log_q(self, logits: Logits, view: View) -> Logits:
        return self.clean(logits, view)


class Editing(Identity):
    """As `Identity`, but what is written may be written again (LLaDA2.1)."""

    revises: ClassVar[bool] = True


class Absorbing(Node):
    """Noise is the mask token: a masked one stays masked with chance m_s / m_t (MDLM, RADD)."""

    revises: ClassVar[bool] = False
    decides: ClassVar[bool] = True
    noise: NoiseLevels | None = struct.field(pytree_node=False, default=None)
    step: str = struct.field(pytree_node=False, default="tweedie")

    def clean(self, logits: Logits, view: View) -> Logits:
        return jnp.where(mask_column(logits, view), LOWEST, logits)

    def log_q(self, logits: Logits, view: View) -> Logits:
        if self.noise is None:
            stay = view.next_time / view.time  # m_s / m_t
            chance = 1 - stay
        else:
            chance = unmask_chance(self.noise, self.step, view.time, view.next_time)
            stay = 1 - chance
        log_stay, log_chance = (safe_log(part)[:, None, None] for part in (stay, chance))
        clean = jax.nn.log_softmax(self.clean(logits, view))
        return jnp.where(mask_column(logits, view), log_stay, clean + log_chance)


class Uniform(Node):
    """Noise is a token drawn uniformly; written tokens may change again (UDLM)."""

    revises: ClassVar[bool] = True
    decides: ClassVar[bool] = True
    eps: Number = 1e-3

    def clean(self, logits: Logits, view: View) -> Logits:
        return logits

    def log_q(self, logits: Logits, view: View) -> Logits:
        kept = 1 - view.number(self.eps, 3)
        alpha_t = 1 - kept * view.time[:, None, None]
        alpha_s = 1 - kept * view.next_time[:, None, None]
        alpha_ts = alpha_t / alpha_s
        size = logits.shape[-1]
        clean = jax.nn.softmax(logits)
        current = jax.nn.one_hot(view.window(view.tokens), size, dtype=clean.dtype)
        # q(x_t | x_s) q(x_s | x_0), summed over the prediction of x_0; the normaliser is
        # the same for every x_s and so left to the softmax.
        joint = (
            alpha_t * size * clean * current
            + (alpha_ts - alpha_t) * current
            + (alpha_s - alpha_t) * clean
            + (1 - alpha_ts) * (1 - alpha_s) / size
        )
        return jax.nn.log_softmax(safe_log(joint))


class Remasking(Node):
    """Masked diffusion in which written tokens may be masked again (ReMDM)."""

    revises: ClassVar[bool] = True
    decides: ClassVar[bool] = True
    share: Number
    cap: Number

    def clean(self, logits: Logits, view: View) -> Logits:
        return jnp.where(mask_column(logits, view), LOWEST, logits)

    def log_q(self, logits: Logits, view: View) -> Logits:
        t, s = view.time[:, None, None], view.next_time[:, None, None]
        alpha_t = 1 - t
        most = jnp.where(alpha_t > 0, jnp.minimum(1, s / jnp.maximum(alpha_t, 1e-37)), 1)
        again = jnp.minimum(view.number(self.cap, 3), view.number(self.share, 3) * most)
        is_mask = mask_column(logits, view)
        stay = (s - again * alpha_t) / t
        fresh = jnp.where(is_mask, safe_log(stay), jax.nn.log_softmax(self.clean(logits, view)))
        fresh = jnp.where(is_mask, fresh, fresh + safe_log(1 - stay))
        tokens = view.window(view.tokens)[..., None]
        own = jnp.arange(logits.shape[-1])[None, None, :] == tokens
        kept = jnp.where(own, safe_log(1 - again), jnp.where(is_mask, safe_log(again), LOWEST))
        return jnp.where(tokens == view.mask_id, fresh, kept)


def remasking(share: Number = 1.0, cap: Number = 1.0) -> Remasking:
    """Absorbing diffusion with second thoughts (ReMDM, Wang et al. 2025).

    From t to s a written token is masked again with the chance σ = min(cap, share · σ_max),
    σ_max = min(1, (1 - α_s) / α_t), and masked ones are drawn a little more often, so that the
    marginals stay those of masked diffusion. `share` is the paper's "rescale", `cap` its "cap";
    share = 0 is `absorbing()`.

    >>> import sake_jax as sj
    >>> denoiser, plan = sj.testing.ToyDenoiser(), sj.descent(8, 32)
    >>> sampler = sj.sampler(denoiser, plan, process=sj.remasking(share=0.5))
    """
    share = number("share", share, at_least=0, at_most=1)
    return Remasking(share, number("cap", cap, at_least=0, at_most=1))


def identity_process(*, draws_mask: bool = True) -> Identity:
    """Draws clean tokens directly.

    With `draws_mask` the mask token is one of them, as in LLaDA's reference: a position that
    draws it stays open. Without, it has no probability, as in MDLM and BD3LM.

    >>> import sake_jax as sj
    >>> denoiser, plan = sj.testing.ToyDenoiser(), sj.blocks(8, 8)
    >>> sampler = sj.sampler(denoiser, plan, process=sj.identity_process(draws_mask=False))
    """
    return Identity(draws_mask)


def editing_process(*, draws_mask: bool = False) -> Editing:
    """Draws clean tokens directly, also where one stands already: a reveal rule such as
    `reveal.editing` says which are replaced, and the plan's `edits` how often.

    >>> import sake_jax as sj
    >>> sampler = sj.sampler(
    ...     sj.testing.ToyDenoiser(),
    ...     sj.blocks(8, 8, edits=4),
    ...     process=sj.editing_process(),
    ...     reveal=sj.reveal.editing(sj.reveal.confidence, 0.9),
    ... )
    """
    return Editing(draws_mask)


def absorbing(noise: NoiseLevels | None = None, step: str = "tweedie") -> Absorbing:
    """Masked diffusion.

    >>> import sake_jax as sj
    >>> denoiser, plan = sj.testing.ToyDenoiser(), sj.descent(8, 16)
    >>> sampler = sj.sampler(denoiser, plan, process=sj.absorbing())

    Args:
      noise: how much of it there is at a time. By default log-linear, of which only the ratio of
        m_s to m_t matters, so that eps does not.
      step: "tweedie" unmasks with the exact chance 1 - m_s / m_t, "euler" with the rate at t times
        the time (RADD's two methods).
    """
    if one_of("step", step, STEPS) == "euler":
        noise = noise or LogLinear()
    return Absorbing(noise, step)


def uniform(eps: Number = 1e-3) -> Uniform:
    """Uniform diffusion; eps = 0 is the raw schedule m_t = t.

    >>> import sake_jax as sj
    >>> denoiser, plan = sj.testing.ToyDenoiser(), sj.descent(8, 16, final="none")
    >>> sampler = sj.sampler(denoiser, plan, process=sj.uniform(eps=0))
    """
    return Uniform(number("eps", eps, at_least=0, at_most=0.5))


def mask_column(logits: Logits, view: View) -> Array:
    """(1, 1, V) which entry is the mask token."""
    rule = "an absorbing process must have a mask token"
    require(view.mask_id is not None, rule, None, "set mask_id on the canvas")
    return (jnp.arange(logits.shape[-1]) == view.mask_id)[None, None, :]
