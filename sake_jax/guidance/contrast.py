"""Contrast: guidance from a second opinion, an unconditional pass or a classifier."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from sake_jax.checks import number, one_of, require
from sake_jax.core import Context, Guidance
from sake_jax.node import Node
from sake_jax.precision import precise
from sake_jax.typing import Logits, Number, Params, PerRow
from sake_jax.view import View

FORMS = ("features", "posterior")
METHODS = ("first_order", "exact")


class WithoutPrompt(Node):
    """The unconditional input of LLaDA: every given token, padding included, is masked."""

    def __call__(self, ctx: Context) -> View:
        view = ctx.view
        rule = "masking the prompt must have a mask token"
        require(view.mask_id is not None, rule, view.mask_id, "use with_label instead")
        given = jnp.asarray(view.prompt | ~view.attend)
        return view.replace(tokens=jnp.where(given, view.mask_id, view.tokens))


class WithLabel(Node):
    """The unconditional input of class-conditional models: a label that stands for none."""

    label: Any

    def __call__(self, ctx: Context) -> View:
        rule = "with_label must have a condition to replace"
        require(ctx.view.cond is not None, rule, None, "give the canvas a condition")
        return ctx.view.replace(cond=jnp.full_like(ctx.view.cond, self.label))


class WithoutUncertain(Node):
    """The unconditional input of adaptive CFG: the least certain written tokens are masked."""

    share: Number

    def __call__(self, ctx: Context) -> View:
        view = ctx.view
        rule = "masking uncertain tokens must have a mask token"
        require(view.mask_id is not None, rule, view.mask_id, "use with_label instead")
        tokens = view.window(view.tokens)
        written = view.window(~view.open & ~view.prompt & view.attend)
        chances = jax.nn.softmax(ctx.head(ctx.rows))
        certainty = jnp.take_along_axis(chances, tokens[..., None], axis=-1)[..., 0]
        rank = jnp.argsort(jnp.argsort(jnp.where(written, certainty, jnp.inf), axis=1), axis=1)
        total = jnp.sum(written, axis=1, keepdims=True, dtype=jnp.float32)
        doubted = written & (
            rank.astype(jnp.float32) < jnp.floor(ctx.number(self.share, 2) * total)
        )
        window = jnp.where(doubted, view.mask_id, tokens)
        return view.replace(tokens=view.put(view.tokens, window))


class ClassifierFree(Guidance):
    scale: Number
    unconditional: Callable[[Context], View]
    form: str = struct.field(pytree_node=False, default="features")

    @property
    def folds(self):
        return self.form == "features"

    def init(self, ctx):
        return ctx.cache

    def push(self, state, ctx):
        rule = "classifier_free must have a denoiser with an affine head"
        require(ctx.affine, rule, "affine=False", "mixing features is not mixing logits there")
        features, state = ctx.read(self.unconditional(ctx), state)
        difference = precise(ctx.rows) - precise(ctx.view.window(features))
        if self.form == "posterior":
            return difference, state
        return ctx.number(self.scale) * difference, state

    def apply(self, logits, psi, state, ctx):
        return (logits if self.form == "posterior" else logits + psi), state, None

    def posterior(self, log_q, logits, psi, state, ctx):
        if self.form == "features":
            return log_q
        other = jax.nn.log_softmax(ctx.log_q(logits - psi))
        log_q = jax.nn.log_softmax(log_q)
        return log_q + ctx.number(self.scale) * (log_q - other)


def with_label(label: int) -> WithLabel:
    """An unconditional input for `classifier_free`: the label that stands for no class.

    >>> import sake_jax as sj
    >>> guidance = sj.classifier_free(1.5, unconditional=sj.with_label(10))  # 10 stands for none
    """
    return WithLabel(label)


def without_prompt() -> WithoutPrompt:
    """An unconditional input for `classifier_free`: the prompt masked, as LLaDA does.

    >>> import sake_jax as sj
    >>> guidance = sj.classifier_free(1.5, unconditional=sj.without_prompt())
    """
    return WithoutPrompt()


def classifier_free(
    scale: Number,
    unconditional: Callable[[Context], View] | None = None,
    *,
    form: str = "features",
) -> ClassifierFree:
    """Classifier-free guidance: away from what the model says without the condition.

    z = z_c + scale (z_c - z_∅), LLaDA's `un + (scale + 1)(cond - un)` and D-CFG with
    γ = scale + 1. The head is affine, so features are mixed in place of logits: the
    unconditional pass costs no second head. Diversity guidances in the same chain look
    at the conditional features.

    >>> import sake_jax as sj
    >>> guidance = sj.chain(sj.classifier_free(1.5), sj.top_p(0.95))

    Args:
      scale: 0 is no guidance.
      unconditional: makes the unconditional input from the context; `without_prompt()`
        by default, or `with_label(...)`, or a function of your own.
      form: "features" is right for identity and absorbing processes (D-CFG there mixes
        log x_θ, which is the same); "posterior" mixes log q(x_s | x_t), D-CFG's form
        for the uniform process. With "posterior", put temperature and filters in the
        sampler's `draw`, where they shape both branches; in the chain they shape one.
    """
    one_of("form", form, FORMS)
    return ClassifierFree(number("scale", scale), unconditional or without_prompt(), form)


def adaptive_free(scale: Number, share: Number = 0.7) -> ClassifierFree:
    """Adaptive classifier-free guidance (A-CFG, arXiv:2505.20199).

    The unconditional input keeps the prompt and masks that share of the window's written
    tokens which the model is least certain of now, so guidance works where it doubts.
    Costs one more evaluation of the head.

    >>> import sake_jax as sj
    >>> guidance = sj.adaptive_free(1.0, share=0.5)
    """
    share = number("share", share, at_least=0, at_most=1)
    return ClassifierFree(number("scale", scale), WithoutUncertain(share))


Classifier = Callable[[Params, jax.Array, View], PerRow]
"""`(params, one_hot (B, L, V), view) -> log p(y | x) (B,)`, differentiable in `one_hot`."""


class ClassifierBased(Guidance):
    strength: Number
    params: Params
    classifier: Classifier = struct.field(pytree_node=False)
    method: str = struct.field(pytree_node=False, default="first_order")

    def posterior(self, log_q, logits, psi, state, ctx):
        ratios = {"first_order": self.first_order, "exact": self.exact}[self.method]
        signal = ratios(ctx, log_q.shape[-1])
        return jax.nn.log_softmax(log_q) + ctx.number(self.strength) * signal

    def first_order(self, ctx: Context, vocabulary: int) -> Logits:
        """log p(y | x with x_i = v), to first order around the tokens as they are."""
        one_hot = jax.nn.one_hot(ctx.view.tokens, vocabulary)

        def total(one_hot):
            log_p = self.classifier(self.params, one_hot, ctx.view)
            return jnp.sum(log_p), log_p

        slope, log_p = jax.grad(total, has_aux=True)(one_hot)
        change = slope - jnp.sum(slope * one_hot, axis=-1, keepdims=True)
        return ctx.view.window(change) + log_p[:, None, None]

    def exact(self, ctx: Context, vocabulary: int) -> Logits:
        """log p(y | x with x_i = v), one evaluation of the classifier for each i and v."""
        one_hot = jax.nn.one_hot(ctx.view.tokens, vocabulary)
        width = ctx.view.width

        def jump(index):
            column, token = ctx.view.window_start + index // vocabulary, index % vocabulary
            changed = one_hot.at[:, column, :].set(jax.nn.one_hot(token, vocabulary)[None, :])
            return self.classifier(self.params, changed, ctx.view)

        jumps = jax.lax.map(jump, jnp.arange(width * vocabulary), batch_size=vocabulary)
        return jnp.moveaxis(jumps, 0, 1).reshape(-1, width, vocabulary)


def classifier_based(
    classifier: Classifier, params: Params, strength: Number, *, method: str = "first_order"
) -> ClassifierBased:
    """Classifier guidance (D-CBG): log q(x_s | x_t) + γ log p(y | x_t with x_i replaced).

    >>> import sake_jax as sj
    >>> def without_sevens(params, one_hot, view):  # log p(y | x)
    ...     return -jnp.sum(one_hot[:, :, 7], axis=1)
    >>> guidance = sj.classifier_based(without_sevens, (), 2.0)

    Args:
      classifier: `(params, one_hot, view) -> (B,)` log-probabilities of the wanted label.
      params: its parameters, a pytree (`()` if it has none).
      strength: γ.
      method: "first_order" needs one gradient; "exact" one evaluation of the classifier
        per position and token, for small vocabularies.
    """
    one_of("method", method, METHODS)
    require(callable(classifier), "classifier must be a function", classifier, "pass a function")
    return ClassifierBased(number("strength", strength), params, classifier, method)
