"""The algebra of guidances: compose them, switch them, run them."""

from typing import Any

import jax
import jax.numpy as jnp

from sake_jax.checks import number, require
from sake_jax.core import Context, Guidance
from sake_jax.guidance.select import first_largest
from sake_jax.node import Node
from sake_jax.precision import precise, product
from sake_jax.sharding import LOGITS, constrain
from sake_jax.typing import GuidanceState, Logits, Number, Rows, WindowTokens


class Chain(Guidance):
    """Guidances applied one after the other; the empty chain is the identity.

    >>> import sake_jax as sj
    >>> guidance = sj.chain(sj.top_p(0.95), sj.sake(1.0, scope="batch"))
    >>> isinstance(guidance, Chain), guidance.couples_samples  # since one of its parts does
    (True, True)
    """

    parts: tuple[Guidance, ...] = ()

    @property
    def folds(self):
        return all(part.folds for part in self.parts)

    @property
    def couples_samples(self):
        return any(part.couples_samples for part in self.parts)

    @property
    def joint(self):
        return any(part.joint for part in self.parts)

    def init(self, ctx):
        return tuple(part.init(ctx) for part in self.parts)

    def push(self, state, ctx):
        pushed = [part.push(s, ctx) for part, s in zip(self.parts, state, strict=True)]
        return tuple(push for push, _ in pushed), tuple(new for _, new in pushed)

    def apply(self, logits, psi, state, ctx):
        after, reports = [], []
        psi = (None,) * len(self.parts) if psi is None else psi  # nothing was pushed
        for part, signal, before in zip(self.parts, psi, state, strict=True):
            logits, new, report = part.apply(logits, signal, before, ctx)
            after.append(new)
            # A chain inside `when` has reports of its own: they stand in the order of its parts.
            reports += report if type(report) is tuple else [report]
        return logits, tuple(after), tuple(report for report in reports if report is not None)

    def posterior(self, log_q, logits, psi, state, ctx):
        for part, signal, now in zip(self.parts, psi, state, strict=True):
            log_q = part.posterior(log_q, logits, signal, now, ctx)
        return log_q

    def draw_jointly(self, log_q, noise, logits, state, ctx):
        ((part, own),) = [both for both in zip(self.parts, state, strict=True) if both[0].joint]
        return part.draw_jointly(log_q, noise, logits, own, ctx)

    def check(self, canvas):
        for part in self.parts:
            part.check(canvas)


def chain(*guidances: Guidance) -> Chain:
    """Applies guidances from left to right; chains inside a chain are flattened.

    The order matters: `chain(top_p(0.95), sake(1.0))` is the paper's trust region, in
    which diversity is sought only among tokens the model finds plausible.

        >>> import sake_jax as sj
        >>> inner = sj.chain(sj.top_p(0.95), sj.temperature(0.7))
        >>> len(sj.chain(inner, sj.sake(1.0)).parts)
        3
    """
    require(
        bool(guidances), "chain must have at least one guidance", guidances, "or use identity()"
    )
    parts: list[Guidance] = []
    for guidance in guidances:
        rule = "every part of a chain must be a Guidance"
        require(isinstance(guidance, Guidance), rule, guidance, "build it with a sake_jax builder")
        parts.extend(guidance.parts if isinstance(guidance, Chain) else [guidance])
    forms = [part for part in parts if part.joint]
    rule, remedy = "a chain must have at most one part that draws jointly", "make one form of both"
    require(len(forms) < 2, rule, forms, remedy)
    return Chain(tuple(parts))


def identity() -> Chain:
    """The guidance that changes nothing: the neutral element of `chain`.

    >>> import sake_jax as sj
    >>> sj.chain(sj.identity(), sj.top_k(5)) == sj.chain(sj.top_k(5))
    True
    """
    return Chain()


class When(Guidance):
    """A guidance that acts while start <= progress < end."""

    inner: Guidance
    start: Number
    end: Number

    @property
    def folds(self):
        return self.inner.folds

    @property
    def couples_samples(self):
        return self.inner.couples_samples

    @property
    def joint(self):
        return self.inner.joint

    def active(self, ctx: Context, rank: int = 3):
        progress = ctx.number(ctx.view.progress, rank)
        return (progress >= ctx.number(self.start, rank)) & (progress < ctx.number(self.end, rank))

    def init(self, ctx):
        return self.inner.init(ctx)

    def push(self, state, ctx):
        pushed, state = self.inner.push(state, ctx)
        return jax.tree.map(lambda rows: jnp.where(self.active(ctx), rows, 0), pushed), state

    def apply(self, logits, psi, state, ctx):
        guided, state, report = self.inner.apply(logits, psi, state, ctx)
        return jnp.where(self.active(ctx), guided, logits), state, report

    def posterior(self, log_q, logits, psi, state, ctx):
        guided = self.inner.posterior(log_q, logits, psi, state, ctx)
        return jnp.where(self.active(ctx), guided, log_q)

    def draw_jointly(self, log_q, noise, logits, state, ctx):
        drawn = self.inner.draw_jointly(log_q, noise, logits, state, ctx)
        return jnp.where(self.active(ctx, 2), drawn, draw_alone(log_q, noise))

    def check(self, canvas):
        self.inner.check(canvas)


def when(guidance: Guidance, start: Number = 0.0, end: Number = 1.0) -> When:
    """Lets a guidance act only while `start <= progress < end`.

    Its state advances, and it reports, all the time; only its effect is switched.

        >>> import sake_jax as sj
        >>> early = sj.when(sj.sake(2.0), end=0.8)  # off for the last fifth of the steps
    """
    rule = "when must get a Guidance"
    require(isinstance(guidance, Guidance), rule, guidance, "build it with a sake_jax builder")
    start = number("start", start, at_least=0, at_most=1)
    return When(guidance, start, number("end", end, at_least=0))


def only_shapes(guidance: Guidance) -> bool:
    """Whether all that a guidance does is `apply`, from logits to logits.

    >>> import sake_jax as sj
    >>> only_shapes(sj.chain(sj.top_p(0.9), sj.temperature(0.7))), only_shapes(sj.sake(1.0))
    (True, False)
    """
    if isinstance(guidance, Chain):
        return all(map(only_shapes, guidance.parts))
    if isinstance(guidance, When):
        return only_shapes(guidance.inner)
    kind = type(guidance)
    only_applies = kind.push is Guidance.push and kind.posterior is Guidance.posterior
    return only_applies and not guidance.joint


class Guided(Node):
    """What one step of guidance gives."""

    base: Any
    """What the head gave for the (folded) rows, before any `apply`."""
    logits: Any
    """After guidance."""
    psi: Any
    """What `posterior` gets: signals, but for folded parts the rows they pushed."""
    state: Any
    """For the next step."""
    reports: tuple
    """What the parts of the chain report, in their order; folded ones report nothing."""


def guide(guidance: Guidance, state: GuidanceState, ctx: Context) -> Guided:
    """One step of guidance: push, one evaluation of the head, apply.

    Leading parts whose `apply` only adds their signal are folded: by linearity
    W h + W g = W (h + g), so they cost no evaluation of the head at all. Recording
    signals needs psi by itself and therefore folds nothing.

    Closed and padded positions keep the base logits, whatever a guidance does.

    >>> import sake_jax as sj
    >>> ctx = sj.testing.toy_context(sj.testing.toy_params(0), sj.testing.toy_view(0))
    >>> guidance = sj.chain(sj.sake(1.0), sj.temperature(0.5))
    >>> guided = guide(guidance, guidance.init(ctx), ctx)
    >>> guided.logits.shape  # rows, window, vocabulary
    (4, 6, 17)
    """
    if isinstance(guidance, Chain):
        return _guide(guidance, state, ctx)
    guided = _guide(Chain((guidance,)), (state,), ctx)
    return guided.replace(psi=guided.psi[0], state=guided.state[0])


def _guide(guidance: Chain, state: tuple, ctx: Context) -> Guided:
    pushed, state = guidance.push(state, ctx)
    open_rows = ctx.open[..., None]
    pushed = jax.tree.map(lambda rows: jnp.where(open_rows, rows, 0), pushed)
    count = _foldable(guidance, ctx)
    rows = ctx.rows
    for extra in jax.tree.leaves(pushed[:count]):
        rows = rows + extra.astype(rows.dtype)
    base, psi = project(ctx, rows, pushed[count:])
    base = ctx.clean(base)
    logits, after, reports = Chain(guidance.parts[count:]).apply(base, psi, state[count:], ctx)
    logits = jnp.where(open_rows, logits, base)
    return Guided(base, logits, pushed[:count] + psi, state[:count] + after, reports)


def last_word(guidance: Guidance, guided: Guided, log_q: Logits, ctx: Context) -> Logits:
    """log q(x_s | x_t) after guidance, what a token is drawn from.

    `log_q` is that of the guided logits; closed and padded positions keep it.
    """
    final = guidance.posterior(log_q, guided.logits, guided.psi, guided.state, ctx)
    return jnp.where(ctx.open[..., None], final, log_q)


def draw_alone(log_q: Logits, noise: Logits) -> WindowTokens:
    """The token at each position by itself, with Gumbel noise."""
    return first_largest(constrain(log_q + noise, LOGITS))


def draw_tokens(
    guidance: Guidance, guided: Guided, log_q: Logits, noise: Logits, ctx: Context
) -> WindowTokens:
    """What is drawn from log q(x_s | x_t): jointly if the guidance says so, else each by itself."""
    if not guidance.joint:
        return draw_alone(log_q, noise)
    return guidance.draw_jointly(log_q, noise, guided.logits, guided.state, ctx)


def _foldable(guidance: Chain, ctx: Context) -> int:
    """How many leading parts may be added to the features before the head."""
    if not ctx.affine or not ctx.fold:
        return 0
    count = 0
    while count < len(guidance.parts) and guidance.parts[count].folds:
        count += 1
    return count


def project(ctx: Context, rows: Rows, pushed: Any) -> tuple[Logits, Any]:
    """Logits of the rows and signals of the pushes, reading the head's weights once.

    Both in float32 at least, whatever the head computes in.
    """
    leaves, structure = jax.tree.flatten(pushed)
    if not leaves:
        return precise(ctx.head(rows)), pushed
    if not ctx.affine:
        psi = [product("bwd,vd->bwv", leaf, ctx.tables.output) for leaf in leaves]
        return precise(ctx.head(rows)), jax.tree.unflatten(structure, psi)
    together = jnp.concatenate([rows, *(leaf.astype(rows.dtype) for leaf in leaves)], axis=1)
    logits, *psi = jnp.split(precise(ctx.head(together)), len(leaves) + 1, axis=1)
    if ctx.tables.bias is not None:
        psi = [signal - precise(ctx.tables.bias)[None, None, :] for signal in psi]
    return logits, jax.tree.unflatten(structure, psi)
