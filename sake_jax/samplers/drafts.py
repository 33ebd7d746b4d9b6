"""Drafted steps: one read of the network serves several steps of a row, with the same tokens.

A step's noise is a function of the row's key, the step and the position. So the features of the
last read already tell what the next steps will probably write: their guided logits, held fixed,
with the very noise that those steps will draw with. The network then reads the canvas that is there
together with these drafts of the next ones, as further rows of one batch. What follows a read (the
head, guidance with its state, draw and reveal) goes on step by step, through the features of one
draft after the other, and ends where a draft is not the canvas that was really written: its
features would be those of another text. What is written is therefore never a draft, only ever what
a step writes, at any temperature and with any guidance.

Rows have a step counter each, so that a row whose drafts are good does not wait for the others. It
waits in two cases: where rows look at each other, those of a prompt move on together; and with a
cache, where all of a batch read a block for the first time together, which has no drafts, since
they would read what that very read is to put into the cache.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.checks import require
from sake_jax.guidance.compose import Guided
from sake_jax.info import Info
from sake_jax.node import Node
from sake_jax.samplers.noise import gumbel, still
from sake_jax.samplers.sampler import Sampler
from sake_jax.samplers.step import RunProgress, RunState, context, settle, take
from sake_jax.samplers.stop import Stop
from sake_jax.sharding import constrain_rows
from sake_jax.typing import Features, Key, Leaf, Params
from sake_jax.view import Canvas, Reread, View

# A group is rows that move on together. Arrays of groups are (G, M, ...), with G groups of M rows
# each; of their K canvases, the real one first, (G, K, M, ...).


class Drafting(Node):
    """What a drafted run carries in place of the denoiser's cache."""

    cache: Any
    """The denoiser's, with rows for all canvases; they differ in the window only."""
    features: Leaf
    """(G, M, L, D) the newest of each row."""
    guided: Guided
    """What the guidance made of them: drafts are drawn from it. Its state is the run's own."""
    reads: Leaf
    """() so far."""


def group_size(sampler: Sampler, canvas: Canvas) -> int:
    """How many rows move on together.

    All of them where something may hold an array with an entry for each row of the batch: recorded
    noise, or numbers; and where everything is recorded, also of rows that have nothing to do.
    """
    rows = canvas.tokens.shape[0]
    parts = (sampler.guidance, sampler.draw, sampler.process, sampler.reveal, sampler.plan)
    by_row = any(leaf.shape[:1] == (rows,) for leaf in map(jnp.asarray, jax.tree.leaves(parts)))
    own_noise = sampler.noise not in (gumbel, still) and not sampler.couples_samples
    if by_row or own_noise or sampler.record == "full":
        return rows
    if not sampler.couples_samples:
        return 1
    rule = "samples of a prompt that look at each other must be in one batch"
    require(rows % canvas.samples == 0, rule, (rows, canvas.samples), "keep prompts whole")
    return canvas.samples


def split(tree: Any, size: int) -> Any:
    """(B, ...) -> (G, M, ...); what all rows share, each group has."""

    def leaf(x: Array) -> Array:
        return x.reshape(-1, size, *x.shape[1:]) if x.ndim else x

    grouped = jax.tree.map(leaf, tree)
    groups = max((x.shape[0] for x in jax.tree.leaves(grouped) if x.ndim), default=1)
    return jax.tree.map(lambda x: x if x.ndim else jnp.broadcast_to(x, (groups,)), grouped)


def join(tree: Any) -> Any:
    """The other way round."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]) if x.ndim > 1 else x[0], tree)


def begin_drafts(
    sampler: Sampler, params: Params, key: Key, state: RunState, groups: RunState, drafts: int
) -> RunState:
    """The state of a drafted run before its first step, from that of a stepwise one, and of one by
    group.

    `step`, and what guidance, draw and process carry, are by group; the canvas is by row, for those
    who look at it.
    """
    canvas, size = state.canvas, group_size(sampler, state.canvas)

    def blank(group: RunState) -> tuple[Features, Guided]:
        view = sampler.plan.view(group.canvas, group.step)
        features, _ = sampler.denoiser.read(params, view, group.cache)
        *_, guided = take(sampler, params, key, group.replace(cache=None), view, features)
        return features, guided.replace(state=None, reports=())

    # Nothing was read yet: the drafts of the first read come from zeros, and none is right.
    shapes = jax.eval_shape(jax.vmap(blank), groups)
    features, guided = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    cache = _spread(sampler, params, state.cache, canvas, size, drafts)
    drafting = Drafting(cache, features, guided, jnp.int32(0))
    return groups.replace(canvas=canvas, cache=drafting)


def advance_drafts(
    sampler: Sampler,
    params: Params,
    key: Key,
    run: RunProgress,
    end: Array,
    stop: Stop | None,
    drafts: int,
    skips: bool,
) -> RunProgress:
    """Goes on until every row has come to the plan's step `end` or, where it `skips` steps without
    work, has nothing open. `params` are prepared."""
    plan, size = sampler.plan, group_size(sampler, run.state.canvas)

    def following(canvas: Canvas, step: Array) -> Array:
        return plan.next_step(canvas, step) if skips else step + 1

    def working(state: RunState) -> Array:
        """(G,) which groups have a step to take; `state` is by group."""
        left = jnp.any(state.canvas.open & state.canvas.attend, axis=(1, 2))
        return (state.step < end) & (left if skips else True)

    def by_group(run: RunProgress) -> RunState:
        return run.state.replace(canvas=split(run.state.canvas, size))

    def one_read(run: RunProgress) -> RunProgress:
        kept, state = run.state.cache, by_group(run).replace(cache=None)
        active = working(state)
        lead = jnp.argmin(jnp.where(active, state.step, plan.steps))
        canvases, steps = jax.vmap(
            functools.partial(_draft, sampler, params, key, following, drafts)
        )(state, kept.guided, kept.features)
        views = jax.vmap(jax.vmap(plan.view))(canvases, steps)
        choice = None
        if plan.cached:
            active = active & (_block(plan, state.step) == _block(plan, state.step[lead]))
            choice = views.reread.choice[lead, 0]
        features, cache = _read(sampler, params, views, kept.cache, lead, drafts)

        def one(state: RunState, features: Features) -> tuple[RunState, Info, Guided]:
            view = plan.view(state.canvas, state.step)
            if plan.cached:  # the same for all: then a guidance reads again no more than it must
                view = view.replace(reread=view.reread.replace(choice=choice))
            return take(sampler, params, key, state, view, features)

        def one_step(carry: tuple) -> tuple:
            at, active, state, kept, run = carry
            own = jax.lax.dynamic_index_in_dim(features, at, axis=1, keepdims=False)
            after, info, guided = jax.vmap(one)(state, own)
            canvas = after.canvas
            if stop is not None:
                ended = stop(join(canvas)).reshape(-1, size, 1)
                canvas = canvas.replace(open=canvas.open & ~ended)
            after = after.replace(canvas=canvas, step=jax.vmap(following)(canvas, state.step))
            info = info.replace(read=jnp.broadcast_to(kept.reads, canvas.prompt_id.shape))
            run = _record(run, jnp.where(active, state.step, plan.steps), info, canvas)
            newest = kept.replace(
                features=own, guided=guided.replace(state=None, reports=())
            )
            state, kept = _where(active, after, state), kept.replace(
                features=_where(active, newest.features, kept.features),
                guided=_where(active, newest.guided, kept.guided),
            )
            # A draft's features serve if it is the canvas that was written, for the same step.
            draft = jnp.minimum(at + 1, drafts - 1)
            same = steps[:, draft] == state.step
            for ours, theirs in (
                (canvas.tokens, canvases.tokens),
                (canvas.open, canvases.open),
            ):
                same = same & jnp.all(ours == theirs[:, draft], axis=(1, 2))
            active = active & same & working(state)
            if plan.cached:
                begun = views.reread.choice[:, 0] >= plan.again
                inside = _block(plan, state.step) == _block(plan, steps[:, 0])
                active = active & inside & ~begun
            return at + 1, active, state, kept, run

        go_on = lambda carry: (carry[0] < drafts) & jnp.any(carry[1])  # noqa: E731
        carry = (jnp.int32(0), active, state, kept.replace(cache=None), run)
        _, _, state, kept, run = jax.lax.while_loop(go_on, one_step, carry)
        kept = kept.replace(cache=cache, reads=kept.reads + 1)
        canvas = constrain_rows(join(state.canvas))
        return run.replace(state=state.replace(canvas=canvas, cache=kept))

    return jax.lax.while_loop(lambda run: jnp.any(working(by_group(run))), one_read, run)


def _draft(
    sampler: Sampler,
    params: Params,
    key: Key,
    following: Any,
    drafts: int,
    state: RunState,
    guided: Guided,
    features: Features,
) -> tuple[Canvas, Array]:
    """The canvas of a group and what the next steps would make of it if logits stayed as they are,
    (K, ...), and the steps that these are read for, (K,)."""
    guided = guided.replace(state=state.guidance)

    def one(state: RunState, _: None) -> tuple[RunState, tuple[Canvas, Array]]:
        view = sampler.plan.view(state.canvas, state.step)
        ctx = context(sampler, params, view, features, state.draw, None)
        after, _ = settle(sampler, params, key, state, guided, ctx)
        after = after.replace(step=following(after.canvas, state.step))
        return after, (after.canvas, after.step)

    _, later = jax.lax.scan(one, state, None, length=drafts - 1)
    first = (state.canvas, state.step)
    return jax.tree.map(lambda now, more: jnp.concatenate([now[None], more]), first, later)


def _block(plan: Any, step: Array) -> Array:
    return step // plan.steps_per_block


def _where(chosen: Array, new: Any, old: Any) -> Any:
    """By group."""
    pick = lambda a, b: jnp.where(chosen.reshape(-1, *(1,) * (a.ndim - 1)), a, b)  # noqa: E731
    return jax.tree.map(pick, new, old)


def _record(run: RunProgress, place: Array, info: Info, canvas: Canvas) -> RunProgress:
    """What groups leave of the steps `place`, (G,); those at the plan's end are not there."""

    def put(record: Array, new: Array) -> Array:
        if new.ndim == 1:  # one number for all rows, which are one group then
            return record.at[place[0]].set(new[0], mode="drop")
        grouped = record.reshape(record.shape[0], *new.shape)
        grouped = grouped.at[place, jnp.arange(new.shape[0])].set(new, mode="drop")
        return grouped.reshape(record.shape)

    tokens = run.tokens
    if tokens is not None:
        # Also for all steps after this one: a row may leave some out that others take.
        later = jnp.arange(tokens.shape[0])[:, None] >= place[None, :]
        later = jnp.repeat(later, canvas.tokens.shape[1], axis=1)[..., None]
        tokens = jnp.where(later, canvas.tokens.reshape(tokens.shape[1:])[None], tokens)
    return run.replace(
        taken=run.taken.at[place].set(True, mode="drop"),
        info=jax.tree.map(put, run.info, info),
        tokens=tokens,
    )


def _read(
    sampler: Sampler, params: Params, views: View, cache: Any, lead: Array, drafts: int
) -> tuple[Features, Any]:
    """Features of all canvases, (G, K, M, L, D), and the cache. At a block's first step those of
    the first canvas are there only."""

    def flat(views: View) -> View:
        """As one batch; what all rows share is the leading group's."""

        def leaf(x: Array) -> Array:
            return x.reshape(-1, *x.shape[3:]) if x.ndim > 2 else x[lead, 0]

        return constrain_rows(jax.tree.map(leaf, views), like=params)

    shape = views.tokens.shape[:3]
    back = lambda rows: rows.reshape(*shape, *rows.shape[1:])  # noqa: E731
    if not sampler.plan.cached:
        features, _ = sampler.denoiser.read(params, flat(views), None)
        return back(features), None

    again, reread = sampler.plan.again, views.reread
    axes = _row_axes(sampler, params, views.tokens.shape[-1])

    def first(cache: Any) -> tuple[Features, Any]:
        single = lambda x, axis: _single(x, axis, shape)  # noqa: E731
        view = flat(jax.tree.map(lambda x: x[:, :1], views))
        chosen = Reread(view.reread.choice - again, reread.spans[again:])
        features, cache = sampler.denoiser.read(
            params, view.replace(reread=chosen), jax.tree.map(single, cache, axes)
        )
        many = lambda x, axis: _many(x, axis, shape)  # noqa: E731
        return back(many(features, 0)), jax.tree.map(many, cache, axes)

    def other(cache: Any) -> tuple[Features, Any]:
        view = flat(views)
        view = view.replace(reread=Reread(view.reread.choice, reread.spans[:again]))
        features, cache = sampler.denoiser.read(params, view, cache)
        return back(features), cache

    return jax.lax.cond(reread.choice[lead, 0] >= again, first, other, cache)


def _row_axes(sampler: Sampler, params: Params, length: int) -> Any:
    """Which axis of each array of a cache is the batch; -1: none."""
    few, more = (
        jax.eval_shape(lambda p, n=n: sampler.denoiser.empty_cache(p, n, length), params)
        for n in (1, 2)
    )
    pairs = lambda a, b: zip(a.shape, b.shape, strict=True)  # noqa: E731
    differ = lambda a, b: [at for at, (n, m) in enumerate(pairs(a, b)) if n != m]  # noqa: E731
    return jax.tree.map(lambda a, b: (differ(a, b) + [-1])[0], few, more)


def _many(x: Array, axis: int, shape: tuple[int, int, int]) -> Array:
    """An array with G M rows with K copies of them, (G, K, M)."""
    if axis < 0:
        return x
    groups, drafts, size = shape
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    apart = x.reshape(*before, groups, 1, size, *after)
    copies = jnp.broadcast_to(apart, (*before, groups, drafts, size, *after))
    return copies.reshape(*before, -1, *after)


def _single(x: Array, axis: int, shape: tuple[int, int, int]) -> Array:
    """The first of the K copies."""
    if axis < 0:
        return x
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    apart = x.reshape(*before, *shape, *after)
    return jax.lax.index_in_dim(apart, 0, axis + 1, keepdims=False).reshape(*before, -1, *after)


def _spread(
    sampler: Sampler, params: Params, cache: Any, canvas: Canvas, size: int, drafts: int
) -> Any:
    """A cache of all rows for all canvases of theirs."""
    if cache is None:
        return None
    rows, length = canvas.tokens.shape
    axes = _row_axes(sampler, params, length)
    shape = (rows // size, drafts, size)
    return jax.tree.map(lambda x, axis: _many(x, axis, shape), cache, axes)


def drafts_of(sampler: Sampler, params: Params, canvas: Canvas) -> int:
    """How many canvases a read serves."""
    return 1 if sampler.drafts == "auto" else sampler.drafts


def at_most(sampler: Sampler, steps: int) -> Sampler:
    """The sampler for a run that is looked at every so many steps: no read serves more."""
    if sampler.drafts == "auto":
        return sampler.replace(drafts=1) if steps == 1 else sampler
    return sampler.replace(drafts=min(sampler.drafts, steps))
