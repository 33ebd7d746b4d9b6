"""The one step: read, guide, draw, reveal."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.core import Context, Process, declared
from sake_jax.guidance.compose import Guided, draw_tokens, guide, last_word
from sake_jax.guidance.entropy import kl_divergence, shannon_entropy
from sake_jax.guidance.select import first_largest, largest
from sake_jax.info import Candidates, Info, mean_over
from sake_jax.losses import surprise
from sake_jax.node import Node
from sake_jax.samplers.noise import TokenDraw, row_keys
from sake_jax.samplers.processes import Settled
from sake_jax.samplers.sampler import Sampler
from sake_jax.sharding import constrain_rows
from sake_jax.typing import Key, Leaf, Logits, Params, PerPosition, WindowFlags, WindowTokens
from sake_jax.view import Canvas, Reread, View

SHOWN = 5
"""How many candidates record="full" keeps for each position."""


class LastRead(Node):
    """Features of the last read, and what has changed since (`reuse`)."""

    features: Any
    stale: Leaf
    """(B,) rows that the last step has changed."""
    window_start: Leaf
    """() of the last step: another window may see other columns."""


class RunState(Node):
    """What changes from step to step.

    A loop of your own carries it from `begin` through every `advance`.

    >>> import sake_jax as sj
    >>> sampler = sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(4, 4))
    >>> params, canvas = sj.testing.toy_params(0), sj.canvas([[1, 2]], 4, mask_id=16)
    >>> state = sj.samplers.begin(sampler, params, jax.random.key(0), canvas)
    >>> isinstance(state, RunState), int(state.step)
    (True, 0)
    """

    step: Leaf
    """() the plan's next step."""
    canvas: Canvas
    cache: Any
    """The denoiser's, a `LastRead`, or None."""
    guidance: Any
    """What the guidance carries."""
    draw: Any
    """What the parts of `draw` carry."""
    process: Any = None
    """What the process carries, if it does."""


class RunProgress(Node):
    """A run that may leave out steps, so far. Its records are by the plan's S steps."""

    state: RunState
    taken: Leaf
    """(S,) which steps were taken."""
    info: Info
    """(S, B, ...) zeros, and `finite`, where a step was not taken."""
    tokens: Leaf
    """(S, B, L) after each step that was taken, or None."""

    def trajectory(self) -> Array:
        """(S, B, L) the tokens after each step: a step that was not taken changed nothing."""
        last = jax.lax.cummax(jnp.where(self.taken, jnp.arange(self.taken.size), 0))
        return self.tokens[last]


def context(
    sampler: Sampler, params: Params, view: View, features: Any, draw_state: Any, cache: Any
) -> Context:
    """What the guidances see; `features` are zeros before the first step."""

    def log_q(logits: Logits) -> Logits:
        shaped, _ = shape_draw(sampler, logits, draw_state, ctx)
        return sampler.process.log_q(keep_rate(sampler.process, shaped, logits, view), view)

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
        # Folded pushes leave neither base logits nor a signal of their own behind.
        fold=sampler.record == "brief"
        and sampler.confidence != "base"
        and not hasattr(sampler.process, "keep_rate"),
        cache=cache,
    )
    return ctx


def shape_draw(
    sampler: Sampler, logits: Logits, draw_state: Any, ctx: Context
) -> tuple[Logits, Any]:
    """Logits after `draw`, and the state of its parts; what they report is not kept."""
    shaped, draw_state, _ = sampler.draw.apply(logits, None, draw_state, ctx)
    return shaped, draw_state


def keep_rate(process: Process, logits: Logits, base: Logits, view: View) -> Logits:
    """Guided logits with what the process keeps of the base ones: scores, the chance to move."""
    keep = getattr(process, "keep_rate", None)
    return logits if keep is None else keep(logits, base, view)


def step(sampler: Sampler, params: Params, key: Key, state: RunState) -> tuple[RunState, Info]:
    """One denoising step: read, guide, draw, reveal, write.

    `key` is the run's key: each step and row folds its own from it.

    >>> import sake_jax as sj
    >>> process = sj.identity_process(draws_mask=False)
    >>> sampler = sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(4, 4), process=process)
    >>> params, canvas = sj.testing.toy_params(0), sj.canvas([[1, 2]], 4, mask_id=16)
    >>> key = jax.random.key(0)
    >>> state, info = step(sampler, params, key, sj.samplers.begin(sampler, params, key, canvas))
    >>> int(state.step), info.entropy.shape  # one number for each row
    (1, (1,))
    """
    view = sampler.plan.view(state.canvas, state.step)
    features, cache = read(sampler, params, view, state.cache)
    state, info, _ = take(sampler, params, key, state.replace(cache=cache), view, features)
    return state, info


def take(
    sampler: Sampler, params: Params, key: Key, state: RunState, view: View, features: Any
) -> tuple[RunState, Info, Guided]:
    """The part of a step that comes after its read; and what the guidance made of the features."""
    ctx = context(sampler, params, view, features, state.draw, None)
    guided = guide(sampler.guidance, state.guidance, ctx)
    return *settle(sampler, params, key, state, guided, ctx), guided


def settle(
    sampler: Sampler, params: Params, key: Key, state: RunState, guided: Guided, ctx: Context
) -> tuple[RunState, Info]:
    """The part of a step that comes after its guidance: draw, reveal, write."""
    canvas, view, cache = state.canvas, ctx.view, state.cache
    shaped, draw_state = shape_draw(sampler, guided.logits, state.draw, ctx)
    moving = keep_rate(sampler.process, shaped, guided.base, view)
    log_q = last_word(sampler.guidance, guided, sampler.process.log_q(moving, view), ctx)
    remember = declared(sampler.denoiser, "remember")
    if remember is not None:
        cache = remember(params, cache, shaped, view)

    keys = jax.vmap(jax.random.split)(row_keys(key, canvas, state.step))
    draw_key, reveal_key = keys[:, 0], keys[:, 1]
    seen = {"guided": guided.logits, "base": guided.base, "drawn": shaped}[sampler.confidence]
    drawn = _draw(sampler, guided, log_q, seen, ctx, draw_key, reveal_key)

    # A row whose logits are not numbers ends here, with what it has written before. A row that
    # has nothing open may hold anything.
    sound = jnp.all(jnp.isfinite(guided.logits) & ~jnp.isnan(log_q), axis=(1, 2))
    finite = sound | ~jnp.any(ctx.open, axis=1)
    kept = sampler.reveal(seen, drawn, view, reveal_key) & ctx.open
    outcome, carried = Settled(drawn, kept, shaped, log_q), state.process
    if hasattr(sampler.process, "settle"):
        outcome, carried = sampler.process.settle(outcome, view, reveal_key, carried)
    allowed = ctx.open & finite[:, None]
    canvas, log_p, revealed = _write(sampler, view, canvas, outcome, allowed, guided.logits)
    canvas = constrain_rows(canvas.replace(open=canvas.open & finite[:, None]))

    if sampler.reuse:
        changed = jnp.any(canvas.tokens != view.tokens, axis=1)
        cache = LastRead(ctx.features, changed, view.window_start)
    after = RunState(state.step + 1, canvas, cache, guided.state, draw_state, carried)
    return after, _info(guided, finite, log_p, revealed, ctx)


def _draw(
    sampler: Sampler,
    guided: Guided,
    log_q: Logits,
    seen: Logits,
    ctx: Context,
    draw_key: Key,
    reveal_key: Key,
) -> WindowTokens:
    """The tokens that are drawn: from log q with noise, unless the noise draws itself."""
    view = ctx.view
    if isinstance(sampler.noise, TokenDraw):
        likely = sampler.reveal(seen, first_largest(seen), view, reveal_key)
        foreseen = likely & view.window(view.open & view.attend)
        drawn = sampler.noise.draw(log_q, draw_key, view, foreseen)
        if view.greedy is None:
            return drawn
        return jnp.where(view.greedy, first_largest(log_q), drawn)
    noise = sampler.noise(draw_key, view, log_q.shape[-1])
    if view.greedy is not None:
        noise = jnp.where(view.greedy, 0, noise)
    return draw_tokens(sampler.guidance, guided, log_q, noise, ctx)


def read(sampler: Sampler, params: Params, view: View, cache: Any) -> tuple[Any, Any]:
    """The denoiser's features; with `reuse` only of rows that have changed since the last."""
    if not sampler.reuse:
        remembers = declared(sampler.denoiser, "remember") is not None
        if remembers and not sampler.plan.cached:  # then the cache is there for that alone
            view = view.replace(reread=Reread(jnp.int32(0), (None,)))
        return sampler.denoiser.read(params, view, cache)
    stale = cache.stale | (cache.window_start != view.window_start)

    def fresh() -> Any:
        features, _ = sampler.denoiser.read(params, view, None)
        # Row by row: what a row's neighbours do must not decide which time it is read at.
        return jnp.where(stale[:, None, None], features, cache.features)

    return jax.lax.cond(jnp.any(stale), fresh, lambda: cache.features), cache


def _write(
    sampler: Sampler,
    view: View,
    canvas: Canvas,
    outcome: Settled,
    allowed: WindowFlags,
    logits: Logits,
) -> tuple[Canvas, PerPosition, WindowFlags]:
    """The canvas with the kept draws, their log-probabilities, and which of them are news; only
    where it is `allowed`.

    Not the view's canvas: a plan may hide columns of that one.
    """
    kept, drawn = outcome.kept & allowed, outcome.tokens
    log_p = -surprise(logits, drawn)
    is_noise = jnp.zeros_like(kept)
    if view.mask_id is not None:
        # A drawn mask token is noise that stays noise: nothing is written, nothing has a chance.
        is_noise = drawn == view.mask_id
        log_p = jnp.where(is_noise, 0, log_p)
        if not sampler.process.revises:
            kept = kept & ~is_noise
    # A process that revises keeps its positions open, and what it draws again as it was is no
    # news: the token keeps the log-probability it was first written with.
    changed = kept & (drawn.astype(canvas.tokens.dtype) != view.window(canvas.tokens))
    news = changed
    if outcome.done is not None:
        # Noise is written too; a token's chance is that of the step that finished it.
        log_p = jnp.where(kept, log_p, 0)
        changed, closed = allowed, allowed & outcome.done[:, None]
    else:
        closed = _settled(view, changed) if sampler.process.revises else kept

    def put(columns, where, new):
        return view.put(columns, jnp.where(where, new.astype(columns.dtype), view.window(columns)))

    canvas = canvas.replace(
        tokens=put(canvas.tokens, changed, drawn),
        log_p=put(canvas.log_p, changed, log_p),
        open=put(canvas.open, closed, jnp.zeros_like(closed)),
    )
    return canvas, log_p, news & ~is_noise


def _settled(view: View, changed: WindowFlags) -> WindowFlags:
    """Which positions of a process that revises are done: none, unless the plan ends its edits.

    Then a row's window is done after a step that found all of it written and changed nothing, or
    that was the last one and leaves nothing unwritten.
    """
    if view.closes is None:
        return jnp.zeros_like(changed)
    if view.mask_id is None:  # nothing is unwritten, and nothing tells when it is good
        return jnp.broadcast_to(view.closes, changed.shape)
    is_open = view.window(view.open & view.attend)
    noise = is_open & (view.window(view.tokens) == view.mask_id)
    same = ~jnp.any(noise, axis=1) & ~jnp.any(changed, axis=1)
    written = jnp.any(is_open, axis=1) & ~jnp.any(noise & ~changed, axis=1)
    return jnp.broadcast_to((written & (same | view.closes))[:, None], changed.shape)


def _info(guided: Guided, finite, log_p, revealed, ctx: Context) -> Info:
    info = Info(
        entropy=mean_over(shannon_entropy(guided.logits), ctx.open),
        confidence=mean_over(jnp.exp(log_p), revealed),
        revealed=jnp.sum(revealed, axis=1),
        finite=finite,
    )
    if ctx.record == "brief":
        return info
    info = info.replace(
        base_entropy=mean_over(shannon_entropy(guided.base), ctx.open),
        kl=mean_over(kl_divergence(guided.logits, guided.base), ctx.open),
        signals=guided.reports,
    )
    if ctx.record == "signal":
        return info
    return info.replace(
        window_start=ctx.view.window_start,
        base_candidates=_candidates(guided.base),
        candidates=_candidates(guided.logits),
    )


def _candidates(logits: Logits) -> Candidates:
    count = min(SHOWN, logits.shape[-1])
    log_p, ids = largest(jax.nn.log_softmax(logits), count)
    return Candidates(ids, log_p, shannon_entropy(logits))
