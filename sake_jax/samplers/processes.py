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
from sake_jax.guidance.entropy import shannon_entropy
from sake_jax.guidance.select import first_largest
from sake_jax.info import mean_over
from sake_jax.node import Node
from sake_jax.noise_levels import STEPS, LogLinear, NoiseLevels, unmask_chance
from sake_jax.precision import safe_log
from sake_jax.samplers.noise import Tokens, uniform_tokens
from sake_jax.typing import Leaf, Logits, Number
from sake_jax.view import Canvas, View


class Settled(Node):
    """What a step writes into the window.

    A process may have `begin(canvas)`, what it carries from step to step, and
    `settle(step, view, keys, carried) -> (step, carried)`, which has the last word on this. It may
    have `keep_rate(logits, base, view)`: guided logits with what it keeps of the base ones; and a
    `prior`, the chances (V,) of tokens that a canvas without a mask token begins with.
    """

    tokens: Leaf
    """(B, W) what was drawn."""
    kept: Leaf
    """(B, W) what the reveal rule keeps of it."""
    logits: Leaf
    """(B, W, V) after guidance and `draw`."""
    log_q: Leaf
    """(B, W, V) what was drawn from."""
    done: Leaf = None
    """(B,) rows whose window is finished; all open positions of the others are written too. None:
    positions that are not kept stay as they are."""


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


class Draft(Node):
    """The likeliest tokens so far, and for how long they have been the same."""

    tokens: Leaf
    """(B, L) -1 where nothing was predicted yet."""
    unchanged: Leaf
    """(B,) steps since one of the window's changed."""


class Renoising(Node):
    """Draws clean tokens; those that are not kept are noise again, and nothing is final before
    the window is: then the likeliest tokens are written (DiffusionGemma)."""

    revises: ClassVar[bool] = True
    decides: ClassVar[bool] = True
    patience: Number
    doubt: Number
    tokens: Tokens = struct.field(pytree_node=False, default=uniform_tokens)

    def clean(self, logits: Logits, view: View) -> Logits:
        return logits

    def log_q(self, logits: Logits, view: View) -> Logits:
        return logits

    def begin(self, canvas: Canvas) -> Draft:
        """What is carried from step to step, before the first."""
        rule, remedy = "renoising is for canvases without a mask token", "pass mask_id=None"
        require(canvas.mask_id is None, rule, "one with it", remedy)
        rows = canvas.tokens.shape[0]
        return Draft(jnp.full(canvas.tokens.shape, -1, jnp.int32), jnp.zeros(rows, jnp.int32))

    def settle(self, step: Settled, view: View, keys: Array, draft: Draft) -> tuple[Settled, Draft]:
        """What becomes of a step's draws: noise where they are not kept, and the likeliest tokens
        in rows whose window is finished, after its last step or since it is stable and sure."""
        best = first_largest(step.log_q).astype(jnp.int32)
        here = view.window(view.open & view.attend)
        same = jnp.all((best == view.window(draft.tokens)) | ~here, axis=1)
        unchanged = jnp.where(same, draft.unchanged + 1, 0)
        stable = unchanged.astype(jnp.float32) >= view.number(self.patience, 1)
        sure = mean_over(shannon_entropy(step.logits), here) < view.number(self.doubt, 1)
        done = stable & sure
        done = done if view.closes is None else done | view.closes
        noise = self.tokens(keys, view, step.log_q.shape[-1]).astype(jnp.int32)
        drawn = jnp.where(step.kept, step.tokens.astype(jnp.int32), noise)
        settled = step.replace(
            tokens=jnp.where(done[:, None], best, drawn), kept=step.kept | done[:, None], done=done
        )
        return settled, Draft(view.put(draft.tokens, best), unchanged)


def renoising(patience: Number = 1, doubt: Number = 0.005) -> Renoising:
    """Uniform noise that is drawn anew: what a reveal rule does not keep of a step's draws is
    replaced by random tokens, also where a token was kept before. A plan's `edits=0` ends it.

    >>> import sake_jax as sj
    >>> sampler = sj.sampler(
    ...     sj.testing.ToyDenoiser(),
    ...     sj.blocks(8, 16, block=4, edits=0),
    ...     process=sj.renoising(patience=2),
    ...     reveal=sj.reveal.entropy_bound(0.5),
    ... )

    Args:
      patience: a window is finished before its last step once its likeliest tokens were the same
        so many steps before, one after the other, and
      doubt: the mean entropy of its positions, in nats, after temperature, is below this. 0: it
        takes all of its steps.
    """
    patience = number("patience", patience, at_least=0)
    return Renoising(patience, number("doubt", doubt, at_least=0))


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
