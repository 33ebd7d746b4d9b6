"""Diversity guidance: the gradient of any diversity objective, projected on the vocabulary.

The framework of the paper's section 4.3: ψ = E ∇_h D (Eq. 13), guided logits z + γ ψ.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax import schedules
from sake_jax.checks import number, one_of, require
from sake_jax.core import Context, Guidance
from sake_jax.guidance import budget, forces
from sake_jax.guidance.entropy import correlation, covariance
from sake_jax.guidance.groups import SCOPES, group
from sake_jax.guidance.kernels import HEURISTICS, Heuristic, collisions
from sake_jax.guidance.objectives import Objective, collision
from sake_jax.info import Signal, mean_over
from sake_jax.node import Node
from sake_jax.precision import precise, product, wide
from sake_jax.typing import Features, Flags, Leaf, Logits, Number

SOURCES = ("hidden", "expected", "predicted", "input")
TABLES = ("input", "output")
GRADIENTS = ("autodiff", "closed_form", "exact")
NORMALIZATIONS = ("none", "rms")
KERNELS = {
    "sequence": ("weights",),
    "batch": ("sample_weights",),
    "both": ("weights", "sample_weights"),
}
"""Where a `Signal` keeps the kernel of each group of a scope, in the order of `group`."""

ALREADY_DIVERSE = 1e-2
"""Below this redundancy a normalised signal fades out: a diverse sequence is left alone."""
ROUNDING = 1e-4
"""Moves smaller than this part of a row are rounding, and are not normalised up to size one."""


class DiversityState(Node):
    """Carried from step to step."""

    spread: Leaf
    """(D, D) covariance of the table's rows: gᵀ spread g is the variance of E g over tokens."""
    signal: Signal | None


class Diversity(Guidance):
    strength: Number
    bandwidth: Number
    attention_bandwidth: Number
    self_term: Number
    kl_budget: Number
    objective: Objective = struct.field(pytree_node=False, default=collision)
    heuristic: Heuristic | None = struct.field(pytree_node=False, default=None)
    source: str = struct.field(pytree_node=False, default="hidden")
    table: str = struct.field(pytree_node=False, default="output")
    gradient: str = struct.field(pytree_node=False, default="autodiff")
    normalize: str = struct.field(pytree_node=False, default="rms")
    scope: str = struct.field(pytree_node=False, default="sequence")

    @property
    def pushes(self) -> bool:
        """Whether the signal is known before the logits and leaves through the head."""
        early = self.source in ("hidden", "input")
        return early and self.table == "output" and self.gradient != "exact"

    @property
    def folds(self):
        return self.pushes and self.kl_budget is None

    def init(self, ctx):
        spread = None
        if self.normalize == "rms" and self.gradient != "exact":
            spread = table_spread(self._embedding(ctx))
        if ctx.record == "brief":
            return DiversityState(spread, None)
        batch, length = ctx.view.tokens.shape
        zeros = jnp.zeros(batch, jnp.float32)
        signal = Signal(zeros, zeros, zeros, zeros)
        if ctx.record == "full":
            others = {"weights": length, "sample_weights": ctx.view.samples}
            for name in KERNELS[self.scope]:
                weights = jnp.zeros((batch, ctx.view.width, others[name]), jnp.float32)
                signal = signal.replace(**{name: weights})
        return DiversityState(spread, signal)

    def push(self, state, ctx):
        if not self.pushes:
            return None, state
        return self._direction(*self._rows(ctx), state, ctx)

    def apply(self, logits, psi, state, ctx):
        if psi is None:
            psi, state = self._late_signal(logits, state, ctx)
        if self.kl_budget is not None:
            cap = jnp.broadcast_to(ctx.number(self.kl_budget, 2), logits.shape[:2])
            psi = psi * budget.fraction(logits, psi, cap)[..., None]
        if state.signal is not None:
            state = state.replace(signal=_measure(state.signal, logits, psi, ctx))
        return logits + psi, state

    def _late_signal(self, logits: Logits, state: DiversityState, ctx: Context):
        """ψ for sources that need the logits, and for tables other than the head's."""
        everyone, valid = self._rows(ctx, logits)
        table = self._embedding(ctx)
        if self.gradient == "exact":
            return self._exact(everyone, valid, table, state, ctx)
        direction, state = self._direction(everyone, valid, state, ctx)
        return product("bwd,vd->bwv", direction, table), state

    def _embedding(self, ctx: Context, name: str | None = None) -> Array:
        """The chosen table, or the named one."""
        name = name or self.table
        table, width = getattr(ctx.tables, name), ctx.features.shape[-1]
        rule = f"the {name} table must be as wide as the features ({width})"
        require(table.shape[1] == width, rule, table.shape, "choose another table or source")
        return table

    def _rows(self, ctx: Context, logits: Logits | None = None) -> tuple[Features, Flags]:
        """H and who takes part in it. Open positions outside the window have no prediction
        yet, so for sources made of predictions they take no part."""
        view = ctx.view
        if self.source == "hidden":
            return precise(ctx.features), view.attend
        if self.source == "input":
            return precise(self._embedding(ctx, "input")[view.tokens]), view.attend
        assert logits is not None, "sources made of predictions are known after the logits"
        table = self._embedding(ctx)
        if self.source == "expected":
            predicted = product("bwv,vd->bwd", jax.nn.softmax(logits), table)
        else:
            predicted = precise(table[jnp.argmax(logits, axis=-1)])
        everyone = precise(table[view.tokens])
        window = jnp.where(ctx.open[..., None], predicted, view.window(everyone))
        everyone = jax.lax.dynamic_update_slice_in_dim(everyone, window, view.start, axis=1)
        known = jnp.ones((logits.shape[0], view.width), bool)
        known = jax.lax.dynamic_update_slice_in_dim(~view.open, known, view.start, axis=1)
        return everyone, view.attend & known

    def _grouped(self, everyone, valid, ctx):
        numbers = self.bandwidth, self.heuristic, self.attention_bandwidth
        return group(self.scope, everyone, valid, ctx, *numbers)

    def _direction(self, everyone: Features, valid: Flags, state: DiversityState, ctx: Context):
        """Where each row of the window should move, strength included."""
        closed = self.gradient == "closed_form"
        force = forces.closed_form if closed else forces.autodiff(self.objective)
        groups = self._grouped(everyone, valid, ctx)
        parts = [jax.tree.map(back, jax.vmap(force)(rows, peers)) for rows, peers, back in groups]
        total: forces.Force = jax.tree.map(lambda *values: sum(values), *parts)
        own = ctx.view.window(everyone)
        self_term = ctx.number(self.self_term)
        direction = total.direction - (1 - self_term) * total.self_weight[..., None] * own
        scale = ctx.number(self.strength)
        if self.normalize == "rms":
            size = jnp.square(total.self_weight * jnp.linalg.norm(own, axis=-1))
            scale = scale * _unit(direction, size, total.redundancy, state.spread, ctx)
        return scale * direction, self._keep(state, total.redundancy, groups, ctx)

    def _exact(self, everyone, valid, table, state, ctx):
        """The unlinearised signal, strength included."""
        groups = self._grouped(everyone, valid, ctx)
        parts = [
            jax.tree.map(back, jax.vmap(forces.exact_signal, (0, 0, None))(rows, peers, table))
            for rows, peers, back in groups
        ]
        psi, redundancy = jax.tree.map(lambda *values: sum(values), *parts)
        scale = ctx.number(self.strength)
        if self.normalize == "rms":
            psi = psi - jnp.mean(psi, axis=-1, keepdims=True)
            variance = mean_over(jnp.var(psi, axis=-1), ctx.open)
            rounding = jnp.square(ROUNDING * mean_over(redundancy, ctx.open))
            unit = _fade(redundancy, ctx) / jnp.sqrt(variance + rounding + 1e-30)
            scale = scale * unit[:, None, None]
        return scale * psi, self._keep(state, redundancy, groups, ctx)

    def _keep(self, state: DiversityState, redundancy: Array, groups, ctx: Context):
        """What is recorded of the kernel."""
        if state.signal is None:
            return state
        mean = mean_over(redundancy, ctx.open).astype(jnp.float32)
        signal = state.signal.replace(redundancy=mean)
        if ctx.record == "full":
            for name, (rows, peers, back) in zip(KERNELS[self.scope], groups, strict=True):
                weights = back(jax.vmap(collisions)(rows, peers)).astype(jnp.float32)
                signal = signal.replace(**{name: weights})
        return state.replace(signal=signal)


def table_spread(table: Array) -> Array:
    """(D, D) covariance of a table's rows."""
    mean = jnp.mean(table, axis=0, dtype=wide(table.dtype))
    return product("vd,ve->de", table, table) / table.shape[0] - mean[:, None] * mean[None, :]


def _fade(redundancy: Array, ctx: Context) -> Array:
    """(B,) 1 for redundant sequences, towards 0 for sequences that are already diverse."""
    return jnp.minimum(mean_over(redundancy, ctx.open) / ALREADY_DIVERSE, 1)


def _unit(direction, size, redundancy, spread, ctx: Context) -> Array:
    """(B, 1, 1) the factor that makes E·direction of unit RMS over a row's open positions.

    Var_y[E_y·g] = gᵀ Cov(E) g: with the table's covariance at hand the signal's size is
    known without the signal, so a folded push can be normalised too.
    """
    along = jnp.einsum("bwd,de->bwe", direction, spread)
    variance = jnp.maximum(mean_over(jnp.sum(along * direction, axis=-1), ctx.open), 0)
    isotropic = jnp.trace(spread) / spread.shape[0]
    rounding = jnp.square(ROUNDING) * isotropic * mean_over(size, ctx.open)
    unit = _fade(redundancy, ctx) / jnp.sqrt(variance + rounding + 1e-30)
    return unit[:, None, None]


def _measure(signal: Signal, logits: Logits, psi: Array, ctx: Context) -> Signal:
    logits, psi = logits.astype(jnp.float32), psi.astype(jnp.float32)
    centred = psi - jnp.mean(psi, axis=-1, keepdims=True)
    return signal.replace(
        covariance=mean_over(covariance(logits, logits, psi), ctx.open),
        correlation=mean_over(correlation(logits, logits, psi), ctx.open),
        rms=jnp.sqrt(mean_over(jnp.mean(jnp.square(centred), axis=-1), ctx.open)),
    )


def diversity(
    objective: Objective,
    strength: Number = 1.0,
    *,
    bandwidth: Number | str | Callable = "median",
    attention_bandwidth: Number | None = None,
    source: str = "hidden",
    table: str = "output",
    self_term: Number = 1.0,
    normalize: str = "rms",
    gradient: str = "autodiff",
    scope: str = "sequence",
    kl_budget: Number | None = None,
) -> Diversity:
    """Guidance along the gradient of a diversity objective: z + γ E ∇_h D (Eq. 13).

    >>> import sake_jax as sj
    >>> def spread(rows, peers):
    ...     return jnp.sum(jnp.square(rows - jnp.mean(peers.rows, axis=0, keepdims=True)))
    >>> guidance = sj.diversity(spread, 0.5, kl_budget=0.2)

    Args:
      objective: a plain function `(rows, peers) -> scalar`, larger is more diverse;
        see `sake_jax.guidance.objectives`. Kernel objectives of your own should compare
        rows through `collisions` or `density`, or `self_term` has nothing to act on.
      strength: γ. With normalize="rms", 1 moves logits by about one nat.
      bandwidth: σ of the semantic kernel: a number, or "median" or "mean" distance of the
        rows at each step, or a function `(squared distances, weights) -> squared σ`.
      attention_bandwidth: σ_attn of the kernel over positions, 20 by default; `vanishing`
        gives one. Scope "batch" compares one position, and has no use for it.
      source: what a position's row h is: "hidden" (the head's input), "expected"
        (softmax(z) E where open), "predicted" (E[argmax z] where open), "input".
      table: E, "output" (the head's own: nearly free) or "input".
      self_term: 1 is the paper's formula; 0 keeps only the repulsion by other rows.
      normalize: "none" leaves the gradient's own scale, "rms" gives the signal unit size
        over a row's open positions, fading out where no rows are near each other for a
        bandwidth that is a number; one taken from the rows always finds some near.
      gradient: "autodiff"; "closed_form" or "exact" for the collision objective of SAKE.
      scope: "sequence" compares positions of a sequence; "batch" the same position across
        the samples of a prompt, whose results then depend on each other; "both" adds them.
      kl_budget: caps the move: per position KL(guided || base) stays below it, in nats.
    """
    one_of("source", source, SOURCES)
    one_of("table", table, TABLES)
    one_of("gradient", gradient, GRADIENTS)
    one_of("normalize", normalize, NORMALIZATIONS)
    one_of("scope", scope, SCOPES)
    require(callable(objective), "objective must be a function", objective, "pass a function")
    rule = f"gradient={gradient!r} must come with the collision objective"
    ours = gradient == "autodiff" or objective is collision
    require(ours, rule, objective, 'use gradient="autodiff"')
    if attention_bandwidth is None:
        attention_bandwidth = 20.0
    else:
        rule = 'attention_bandwidth must be left out with scope="batch"'
        require(scope != "batch", rule, attention_bandwidth, "one position has no distances")
    if gradient == "exact":
        literal = isinstance(self_term, int | float) and self_term == 1
        remedy = "leave self_term at 1: the unlinearised gap has no self term"
        require(literal, 'self_term must be 1 with gradient="exact"', self_term, remedy)
    heuristic: Any = None
    if isinstance(bandwidth, str):
        heuristic, bandwidth = HEURISTICS[one_of("bandwidth", bandwidth, HEURISTICS)], None
    elif callable(bandwidth) and not isinstance(bandwidth, schedules.Schedule):
        heuristic, bandwidth = bandwidth, None
    else:
        bandwidth = number("bandwidth", bandwidth, above=0)
    return Diversity(
        number("strength", strength),
        bandwidth,
        number("attention_bandwidth", attention_bandwidth, above=0),
        number("self_term", self_term),
        None if kl_budget is None else number("kl_budget", kl_budget, above=0),
        objective,
        heuristic,
        source,
        table,
        gradient,
        normalize,
        scope,
    )
