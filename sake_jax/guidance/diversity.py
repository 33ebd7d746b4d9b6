"""Diversity guidance: the gradient of any diversity objective, projected on the vocabulary.

The framework of the paper's section 4.3: ψ = E ∇_h D (Eq. 13), guided logits z + γ ψ.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax import schedules
from sake_jax.checks import number, one_of, require
from sake_jax.core import Context, Guidance
from sake_jax.guidance import budget
from sake_jax.guidance.entropy import correlation, covariance
from sake_jax.guidance.forces import GRADIENTS, Force, Gradient, exact_signal
from sake_jax.guidance.groups import SCOPES, Grouped, group
from sake_jax.guidance.kernels import HEURISTICS, Heuristic, collisions
from sake_jax.guidance.normalize import NORMALIZATIONS, Normalize
from sake_jax.guidance.objectives import Objective, collision
from sake_jax.guidance.sources import SOURCES, EarlySource, Source, embedding
from sake_jax.info import Signal, mean_over
from sake_jax.node import Node
from sake_jax.precision import product, wide
from sake_jax.typing import Features, Flags, Leaf, Logits, Number, PerPosition, Rows

TABLES = ("input", "output")
KERNELS = {
    "sequence": ("weights",),
    "batch": ("sample_weights",),
    "both": ("weights", "sample_weights"),
}
"""Where a `Signal` reports the kernel of each group of a scope, in the order of `group`."""

ROUNDING = 1e-4
"""Moves smaller than this part of a row are rounding, and are not normalised up to size one."""


class KernelReport(Node):
    """What a step's signal was made from, on its way from `push` to the report of `apply`."""

    redundancy: Leaf
    """(B,)"""
    weights: dict[str, Any]
    """By field of `Signal`, with record="full"."""


class DiversityState(Node):
    """Carried from step to step."""

    spread: Leaf
    """(D, D) covariance of the table's rows: gᵀ spread g is the variance of E g over tokens. It
    is the same at every step, so it is computed once a run."""
    kernel: KernelReport | None = None
    """From `push` to `apply` of one step; never from one step to the next."""


class Diversity(Guidance):
    """See `diversity`. Choices are short names of ours, or functions.

    >>> import sake_jax as sj
    >>> guidance = sj.diversity(sj.collision, 1.0, scope="batch")
    >>> isinstance(guidance, Diversity), guidance.couples_samples
    (True, True)
    """

    strength: Number
    bandwidth: Number
    attention_bandwidth: Number
    self_term: Number
    kl_budget: Number
    objective: Objective = struct.field(pytree_node=False, default=collision)
    heuristic: Heuristic | None = struct.field(pytree_node=False, default=None)
    source: str | Source = struct.field(pytree_node=False, default="hidden")
    table: str = struct.field(pytree_node=False, default="output")
    gradient: str | Gradient = struct.field(pytree_node=False, default="autodiff")
    normalize: str | Normalize = struct.field(pytree_node=False, default="rms")
    scope: str = struct.field(pytree_node=False, default="sequence")

    @property
    def pushes(self) -> bool:
        """Whether the signal is known before the logits and leaves through the head."""
        early = isinstance(_resolve(self.source, SOURCES), EarlySource)
        return early and self.table == "output" and not self._exact

    @property
    def folds(self):
        return self.pushes and self.kl_budget is None

    @property
    def couples_samples(self):
        return self.scope != "sequence"

    @property
    def _exact(self) -> bool:
        return _resolve(self.gradient, GRADIENTS) is exact_signal

    def init(self, ctx):
        normalized = _resolve(self.normalize, NORMALIZATIONS) is not None
        needed = normalized and not self._exact
        return DiversityState(table_spread(embedding(ctx, self.table)) if needed else None)

    def push(self, state, ctx):
        if not self.pushes:
            return None, state
        rows, takes_part = self._rows(ctx, None)
        return self._direction(rows, takes_part, state, ctx)

    def apply(self, logits, psi, state, ctx):
        if psi is None:
            psi, state = self._signal_after_logits(logits, state, ctx)
        if self.kl_budget is not None:
            cap = jnp.broadcast_to(ctx.number(self.kl_budget, 2), logits.shape[:2])
            psi = psi * budget.fraction(logits, psi, cap)[..., None]
        report = None if state.kernel is None else _report(state.kernel, logits, psi, ctx)
        return logits + psi, state.replace(kernel=None), report

    def _rows(self, ctx: Context, logits: Logits | None) -> tuple[Features, Flags]:
        return _resolve(self.source, SOURCES)(ctx, logits, embedding(ctx, self.table))

    def _signal_after_logits(self, logits: Logits, state: DiversityState, ctx: Context):
        """ψ for sources that need the logits, and for tables other than the head's."""
        rows, takes_part = self._rows(ctx, logits)
        table = embedding(ctx, self.table)
        if self._exact:
            return self._exact_signal(rows, takes_part, table, state, ctx)
        direction, state = self._direction(rows, takes_part, state, ctx)
        return product("bwd,vd->bwv", direction, table), state

    def _groups(self, rows: Features, takes_part: Flags, ctx: Context) -> list[Grouped]:
        numbers = self.bandwidth, self.heuristic, self.attention_bandwidth
        return group(self.scope, rows, takes_part, ctx, *numbers)

    def _direction(
        self, everyone: Features, takes_part: Flags, state: DiversityState, ctx: Context
    ) -> tuple[Rows, DiversityState]:
        """Where each row of the window should move, strength included."""
        gradient = _resolve(self.gradient, GRADIENTS)
        groups = self._groups(everyone, takes_part, ctx)

        def force_in(rows: Array, peers: Any, back: Callable[[Array], Array]) -> Force:
            each = jax.vmap(lambda rows, peers: gradient(self.objective, rows, peers))
            return jax.tree.map(back, each(rows, peers))

        # With scope "both" a row is pushed by its sequence and by the other samples.
        forces = [force_in(*grouped) for grouped in groups]
        total: Force = jax.tree.map(lambda *parts: sum(parts), *forces)
        own = ctx.view.window(everyone)
        # Every force is self_weight·h - pull. The first part points along the row itself: with a
        # head that agrees with the rows it favours what is predicted already. A self term of 0
        # takes it out and leaves the repulsion.
        missing = 1 - ctx.number(self.self_term)
        direction = total.direction - missing * total.self_weight[..., None] * own
        scale = ctx.number(self.strength)
        normalize = _resolve(self.normalize, NORMALIZATIONS)
        if normalize is not None:
            size = jnp.square(total.self_weight) * jnp.sum(jnp.square(own), axis=-1)
            variance, rounding = _variance(direction, size, state.spread, ctx)
            unit = normalize(variance, rounding, total.redundancy, ctx)
            scale = scale * unit[:, None, None]
        return scale * direction, self._keep(state, total.redundancy, groups, ctx)

    def _exact_signal(
        self, everyone: Features, takes_part: Flags, table: Array, state, ctx: Context
    ):
        """The signal without linearisation, strength included."""
        groups = self._groups(everyone, takes_part, ctx)
        parts = [
            jax.tree.map(back, jax.vmap(exact_signal, (0, 0, None))(rows, peers, table))
            for rows, peers, back in groups
        ]
        psi, redundancy = jax.tree.map(lambda *values: sum(values), *parts)
        scale = ctx.number(self.strength)
        normalize = _resolve(self.normalize, NORMALIZATIONS)
        if normalize is not None:
            psi = psi - jnp.mean(psi, axis=-1, keepdims=True)
            variance = mean_over(jnp.var(psi, axis=-1), ctx.open)
            rounding = jnp.square(ROUNDING * mean_over(redundancy, ctx.open))
            scale = scale * normalize(variance, rounding, redundancy, ctx)[:, None, None]
        return scale * psi, self._keep(state, redundancy, groups, ctx)

    def _keep(
        self, state: DiversityState, redundancy: PerPosition, groups: list[Grouped], ctx: Context
    ) -> DiversityState:
        """The state with what `apply` reports of the kernel."""
        if ctx.record == "brief":
            return state
        weights = {}
        if ctx.record == "full":
            for name, (rows, peers, back) in zip(KERNELS[self.scope], groups, strict=True):
                weights[name] = back(jax.vmap(collisions)(rows, peers)).astype(jnp.float32)
        mean = mean_over(redundancy, ctx.open).astype(jnp.float32)
        return state.replace(kernel=KernelReport(mean, weights))


def _resolve(choice: Any, ours: Mapping[str, Any]) -> Any:
    """The function behind a short name; functions stay as they are."""
    return ours[choice] if isinstance(choice, str) else choice


def table_spread(table: Array) -> Array:
    """(D, D) covariance of a table's rows."""
    mean = jnp.mean(table, axis=0, dtype=wide(table.dtype))
    return product("vd,ve->de", table, table) / table.shape[0] - mean[:, None] * mean[None, :]


def _variance(direction: Rows, size: PerPosition, spread: Array, ctx: Context):
    """(B,), (B,) the variance of E·direction over tokens, and what of it may be rounding; means
    over a row's open positions.

    Var_y[E_y·g] = gᵀ Cov(E) g: with the table's covariance at hand the signal's size is
    known without the signal, so a folded push can be normalised too.
    """
    along = jnp.einsum("bwd,de->bwe", direction, spread)
    variance = jnp.maximum(mean_over(jnp.sum(along * direction, axis=-1), ctx.open), 0)
    isotropic = jnp.trace(spread) / spread.shape[0]
    return variance, jnp.square(ROUNDING) * isotropic * mean_over(size, ctx.open)


def _report(kernel: KernelReport, logits: Logits, psi: Array, ctx: Context) -> Signal:
    logits, psi = logits.astype(jnp.float32), psi.astype(jnp.float32)
    centred = psi - jnp.mean(psi, axis=-1, keepdims=True)
    return Signal(
        covariance=mean_over(covariance(logits, logits, psi), ctx.open),
        correlation=mean_over(correlation(logits, logits, psi), ctx.open),
        rms=jnp.sqrt(mean_over(jnp.mean(jnp.square(centred), axis=-1), ctx.open)),
        redundancy=kernel.redundancy,
        **kernel.weights,
    )


def diversity(
    objective: Objective,
    strength: Number = 1.0,
    *,
    bandwidth: Number | str | Callable = "median",
    attention_bandwidth: Number | None = None,
    source: str | Source = "hidden",
    table: str = "output",
    self_term: Number = 1.0,
    normalize: str | Normalize = "rms",
    gradient: str | Gradient = "autodiff",
    scope: str = "sequence",
    kl_budget: Number | None = None,
) -> Diversity:
    """Guidance along the gradient of a diversity objective: z + γ E ∇_h D (Eq. 13).

    >>> import sake_jax as sj
    >>> def spread(rows, peers):  # away from the middle of those that take part
    ...     weight = peers.weight[:, None] / jnp.maximum(jnp.sum(peers.weight), 1)
    ...     middle = jnp.sum(weight * peers.rows, axis=0, keepdims=True)
    ...     return jnp.sum(jnp.square(rows - middle))
    >>> guidance = sj.diversity(spread, 0.5, kl_budget=0.2)

    Args:
      objective: a plain function `(rows, peers) -> scalar`, larger is more diverse;
        see `sake_jax.guidance.objectives`. Kernel objectives of your own should compare
        rows through `collisions` or `density`, or `self_term` has nothing to act on; others
        must leave out padding, where `peers.weight` is 0.
      strength: γ. With normalize="rms", 1 moves logits by about one nat. A negative one is not
        refused, and does the opposite: what is drawn comes to look alike.
      bandwidth: σ of the semantic kernel: a number, or "median" or "mean" distance of the
        rows at each step, or a function `(squared distances, weights) -> squared σ`.
      attention_bandwidth: σ_attn of the kernel over positions, 20 by default; `vanishing`
        gives one. Scope "batch" compares one position, and has no use for it.
      source: what a position's row h is: "hidden" (the head's input), "expected"
        (softmax(z) E where open), "predicted" (E[argmax z] where open), "input", or a function;
        see `sake_jax.guidance.sources`.
      table: E, "output" (the head's own: nearly free) or "input".
      self_term: 1 is the paper's formula; 0 keeps only the repulsion by other rows.
      normalize: "none" leaves the gradient's own scale, "rms" gives the signal unit size
        over a row's open positions, fading out where no rows are near each other for a
        bandwidth that is a number; one taken from the rows always finds some near. Or a function;
        see `sake_jax.guidance.normalize`.
      gradient: "autodiff"; "closed_form" or "exact" for the collision objective of SAKE; or a
        function `(objective, rows, peers) -> Force`, see `sake_jax.guidance.forces`.
      scope: "sequence" compares positions of a sequence; "batch" the same position across
        the samples of a prompt, whose results then depend on each other; "both" adds them.
      kl_budget: caps the move: per position KL(guided || base) stays below it, in nats.
    """
    for name, choice, ours in (
        ("source", source, SOURCES),
        ("gradient", gradient, GRADIENTS),
        ("normalize", normalize, NORMALIZATIONS),
    ):
        if not callable(choice):
            one_of(name, choice, ours)
    one_of("table", table, TABLES)
    one_of("scope", scope, SCOPES)
    require(callable(objective), "objective must be a function", objective, "pass a function")
    rule = f"gradient={gradient!r} must come with the collision objective"
    for_collision = gradient in ("closed_form", "exact")
    require(objective is collision or not for_collision, rule, objective, 'use "autodiff"')
    if attention_bandwidth is None:
        attention_bandwidth = 20.0
    else:
        rule = 'attention_bandwidth must be left out with scope="batch"'
        require(scope != "batch", rule, attention_bandwidth, "one position has no distances")
    if gradient == "exact":
        literal = isinstance(self_term, int | float) and self_term == 1
        remedy = "leave self_term at 1: the unlinearised gap has no self term"
        require(literal, 'self_term must be 1 with gradient="exact"', self_term, remedy)
    width, heuristic = _bandwidth(bandwidth)
    return Diversity(
        strength=number("strength", strength),
        bandwidth=width,
        attention_bandwidth=number("attention_bandwidth", attention_bandwidth, above=0),
        self_term=number("self_term", self_term),
        kl_budget=None if kl_budget is None else number("kl_budget", kl_budget, above=0),
        objective=objective,
        heuristic=heuristic,
        source=source,
        table=table,
        gradient=gradient,
        normalize=normalize,
        scope=scope,
    )


def _bandwidth(given: Any) -> tuple[Any, Any]:
    """A number, or the function that takes it from the rows."""
    if isinstance(given, str):
        return None, HEURISTICS[one_of("bandwidth", given, HEURISTICS)]
    if callable(given) and not isinstance(given, schedules.Schedule):
        return None, given
    return number("bandwidth", given, above=0), None
