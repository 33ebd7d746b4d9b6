"""The one step: read, guide, draw, reveal."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from sake_jax.checks import one_of, require
from sake_jax.core import Canvas, Context, Denoiser, Guidance, Plan, Process, Reveal, View
from sake_jax.guidance.compose import Chain, Guided, When, chain, guide, identity, last_word
from sake_jax.guidance.entropy import entropy, kl
from sake_jax.guidance.select import first_largest, largest
from sake_jax.guidance.shaping import is_greedy
from sake_jax.info import RECORDS, Candidates, Info, Signal, mean_over
from sake_jax.losses import surprise
from sake_jax.node import Node
from sake_jax.samplers.noise import Noise, gumbel, row_keys, still
from sake_jax.samplers.plans import Blocks
from sake_jax.samplers.processes import Identity
from sake_jax.samplers.reveal import as_rule, everything
from sake_jax.samplers.reveal import confidence as most_confident
from sake_jax.sharding import LOGITS, constrain, constrain_rows
from sake_jax.typing import Key, Logits, Params

CONFIDENCES = ("guided", "base", "drawn")
SHOWN = 5
"""How many candidates record="full" keeps for each position."""


class Sampler(Node):
    """Everything a run needs but parameters, key and canvas. Numbers are leaves.

    >>> import sake_jax as sj
    >>> made = sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(8, 8))
    >>> made.replace(record="signal").record
    'signal'
    """

    denoiser: Any
    process: Any
    guidance: Chain
    draw: Chain
    """Shapes what is drawn, but not the logits the reveal rule sees."""
    plan: Plan
    reveal: Any
    noise: Noise = struct.field(pytree_node=False)
    confidence: str = struct.field(pytree_node=False, default="guided")
    """Which logits the reveal rule sees."""
    reuse: bool = struct.field(pytree_node=False, default=False)
    """Whether a canvas that did not change is not read again."""
    record: str = struct.field(pytree_node=False, default="brief")


def sampler(
    denoiser: Denoiser,
    plan: Plan,
    *,
    guidance: Guidance | None = None,
    draw: Guidance | None = None,
    process: Process | None = None,
    reveal: Reveal | None = None,
    noise: Noise = gumbel,
    confidence: str = "guided",
    reuse: bool = False,
    record: str = "brief",
) -> Sampler:
    """Puts a sampler together.

    >>> import sake_jax as sj
    >>> denoiser, plan = sj.testing.ToyDenoiser(), sj.blocks(length=8, steps=8)
    >>> made = sj.sampler(denoiser, plan, guidance=sj.sake(1.0), draw=sj.temperature(0.7))

    Args:
      denoiser: the model, without its parameters.
      plan: which columns are written when; see `blocks`.
      guidance: changes the distribution, and the reveal rule sees it.
      draw: changes what is drawn only: temperature and filters, usually.
      process: how noise is undone; `identity_process()` by default.
      reveal: which draws are kept; a rule of `sake_jax.reveal` or your own. By default
        `confidence`, or `everything` for a process that decides by itself.
      confidence: which logits the reveal rule sees: "guided"; "base", before guidance; "drawn",
        after `draw`, as Dream's reference has it (at low temperatures its order is then
        left to right).
      reuse: does not read a canvas again that the last step left as it was. For plans without
        a cache, and denoisers that do not look at the time.
      noise: where Gumbel noise comes from; replace it to replay recorded noise. None is made
        where `draw` has temperature 0.
      record: "brief"; "signal" for telemetry that needs base and guided logits, "full"
        for the likeliest candidates and the kernel's weights at every position too.
    """
    one_of("record", record, RECORDS)
    one_of("confidence", confidence, CONFIDENCES)
    _check_denoiser(denoiser)
    process = process or Identity()
    draw = chain(identity(), *([draw] if draw else []))
    if noise is gumbel and any(is_greedy(part) for part in draw.parts):
        noise = still
    rule = "draw must only shape logits (temperature, filters)"
    require(_only_shapes(draw), rule, draw, "put other guidances in guidance=")
    if reuse:
        config = getattr(denoiser, "config", None)
        timed = getattr(config, "time_conditioning", False)
        rule, remedy = "reuse needs a denoiser that does not look at the time", "leave it out"
        require(not timed, rule, config, remedy)
        rule = "reuse is for plans without a cache"
        require(not plan.cached, rule, plan, "leave one of them out")
    if plan.cached:
        rule, remedy = "a plan with a cache needs denoiser.empty_cache", "use cache='none'"
        require(hasattr(denoiser, "empty_cache"), rule, denoiser, remedy)
    if isinstance(plan, Blocks) and plan.pace == "even" and not process.decides:
        rule = f"steps must be at most length ({plan.length}): a step writes a token or more"
        require(plan.steps <= plan.length, rule, plan.steps, "lower steps")
    return Sampler(
        denoiser=denoiser,
        process=process,
        guidance=chain(identity(), *([guidance] if guidance else [])),
        draw=draw,
        plan=plan,
        reveal=as_rule(reveal or (everything if process.decides else most_confident)),
        noise=noise,
        confidence=confidence,
        reuse=reuse,
        record=record,
    )


def _check_denoiser(denoiser: Denoiser) -> None:
    rule, remedy = "denoiser must have read, head, tables and affine", "see sake_jax.Denoiser"
    require(isinstance(denoiser, Denoiser), rule, denoiser, remedy)
    leaves = jax.tree.leaves(denoiser)
    rule, remedy = "denoiser must be a pytree", "derive it from sake_jax.Node"
    require(not any(leaf is denoiser for leaf in leaves), rule, denoiser, remedy)
    rule, remedy = "denoiser.affine must be a class variable", "annotate it as ClassVar[bool]"
    require(not any(isinstance(leaf, bool) for leaf in leaves), rule, denoiser, remedy)


def _only_shapes(guidance: Guidance) -> bool:
    """Whether all that a guidance does is `apply`."""
    if isinstance(guidance, Chain):
        return all(map(_only_shapes, guidance.parts))
    if isinstance(guidance, When):
        return _only_shapes(guidance.inner)
    kind = type(guidance)
    return kind.push is Guidance.push and kind.posterior is Guidance.posterior


class Kept(Node):
    """Features of the last read, and whether the canvas has changed since."""

    features: Any
    stale: Any


class State(Node):
    """What changes from step to step."""

    canvas: Canvas
    cache: Any
    guidance: Any


def context(sampler: Sampler, params: Params, view: View, features, cache) -> Context:
    """What the guidances see; `features` are zeros before the first step."""

    def log_q(logits: Logits) -> Logits:
        return sampler.process.log_q(shaped(sampler, logits, ctx), view)

    ctx = Context(
        view=view,
        features=features,
        tables=sampler.denoiser.tables(params),
        head=lambda rows: sampler.denoiser.head(params, rows),
        read=lambda other, kept: sampler.denoiser.read(params, other, kept),
        log_q=log_q,
        clean=lambda logits: sampler.process.clean(logits, view),
        affine=sampler.denoiser.affine,
        record=sampler.record,
        fold=sampler.confidence != "base",
        cache=cache,
    )
    return ctx


def shaped(sampler: Sampler, logits: Logits, ctx: Context) -> Logits:
    """Logits after `draw`."""
    return sampler.draw.apply(logits, None, sampler.draw.init(ctx), ctx)[0]


def step(
    sampler: Sampler, params: Params, key: Key, state: State, index: jax.Array, reread: int = 0
) -> tuple[State, Info]:
    """One denoising step; `key` is the run's key, each step and row folds its own from it."""
    canvas = state.canvas
    view = sampler.plan.view(canvas, index).replace(reread=reread)
    features, cache = read(sampler, params, view, state.cache)
    ctx = context(sampler, params, view, features, None)
    guided = guide(sampler.guidance, state.guidance, ctx)
    log_q = last_word(sampler.guidance, guided, ctx)
    keys = jax.vmap(jax.random.split)(row_keys(key, canvas, index))
    draw_key, reveal_key = keys[:, 0], keys[:, 1]
    noise = sampler.noise(draw_key, view, log_q.shape[-1])
    if view.greedy is not None:
        noise = jnp.where(view.greedy, 0, noise)
    drawn = first_largest(constrain(log_q + noise, LOGITS))
    sound = jnp.all(jnp.isfinite(guided.logits) & ~jnp.isnan(log_q), axis=(1, 2))
    finite = sound | ~jnp.any(ctx.open, axis=1)
    kept = sampler.reveal(_seen(sampler, guided, ctx), drawn, view, reveal_key)
    kept = kept & ctx.open & finite[:, None]
    if view.mask_id is not None and not sampler.process.revises:
        kept = kept & (drawn != view.mask_id)  # noise that stays noise
    closed = jnp.zeros_like(kept) if sampler.process.revises else kept
    log_p = -surprise(guided.logits, drawn)
    # What a process that revises draws again as it was is no news.
    fresh = kept & (drawn.astype(canvas.tokens.dtype) != view.window(canvas.tokens))
    if view.mask_id is not None:
        log_p = jnp.where(drawn == view.mask_id, 0, log_p)
        news = fresh & (drawn != view.mask_id)
    else:
        news = fresh
    canvas = _write(canvas, view, fresh, closed, drawn, log_p)
    # A row whose logits are not numbers ends here, with what it has written before.
    canvas = constrain_rows(canvas.replace(open=canvas.open & finite[:, None]))
    if sampler.reuse:
        cache = Kept(features, jnp.any(canvas.tokens != view.tokens))
    return State(canvas, cache, guided.state), _info(guided, finite, log_p, news, ctx)


def read(sampler: Sampler, params: Params, view: View, cache: Any) -> tuple[Any, Any]:
    """The denoiser's features; with `reuse` only where the canvas has changed since the last."""
    if not sampler.reuse:
        return sampler.denoiser.read(params, view, cache)
    fresh = lambda: sampler.denoiser.read(params, view, None)[0]  # noqa: E731
    return jax.lax.cond(cache.stale, fresh, lambda: cache.features), cache


def _seen(sampler: Sampler, guided: Guided, ctx: Context) -> Logits:
    """What the reveal rule judges by."""
    if sampler.confidence == "base":
        return guided.base
    return shaped(sampler, guided.logits, ctx) if sampler.confidence == "drawn" else guided.logits


def _write(canvas: Canvas, view: View, kept, closed, drawn, log_p) -> Canvas:
    def put(columns, where, new):
        part = jnp.where(where, new.astype(columns.dtype), view.window(columns))
        return jax.lax.dynamic_update_slice_in_dim(columns, part, view.start, axis=1)

    return canvas.replace(
        tokens=put(canvas.tokens, kept, drawn),
        log_p=put(canvas.log_p, kept, log_p),
        open=put(canvas.open, closed, jnp.zeros_like(closed)),
    )


def _info(guided: Guided, finite, log_p, kept, ctx: Context) -> Info:
    info = Info(
        entropy=mean_over(entropy(guided.logits), ctx.open),
        confidence=mean_over(jnp.exp(log_p), kept),
        revealed=jnp.sum(kept, axis=1),
        finite=finite,
    )
    if ctx.record == "brief":
        return info
    is_signal = lambda node: isinstance(node, Signal)  # noqa: E731
    nodes = jax.tree.leaves(guided.state, is_leaf=is_signal)
    info = info.replace(
        base_entropy=mean_over(entropy(guided.base), ctx.open),
        kl=mean_over(kl(guided.logits, guided.base), ctx.open),
        signals=tuple(filter(is_signal, nodes)),
    )
    if ctx.record == "signal":
        return info
    return info.replace(
        start=ctx.view.start,
        base_candidates=_candidates(guided.base),
        candidates=_candidates(guided.logits),
    )


def _candidates(logits: Logits) -> Candidates:
    count = min(SHOWN, logits.shape[-1])
    log_p, ids = largest(jax.nn.log_softmax(logits), count)
    return Candidates(ids, log_p, entropy(logits))
