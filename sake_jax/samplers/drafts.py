"""Drafted steps: one read of the network serves several steps of a row, with the same tokens.

A step's noise is a function of the row's key, the step and the position. So the features of the
last read already tell what the next steps will probably write: their guided logits, held fixed,
with the very noise that those steps will draw with. The network then reads the canvas that is there
together with these drafts of the next ones, as further rows of one batch. What follows a read (the
head, guidance with its state, draw and reveal) goes on step by step, through the features of one
draft after the other, and ends where none of them is the canvas that was really written: their
features would be those of another text. What is written is therefore never a draft, only ever what
a step writes, at any temperature and with any guidance.

Rows have a step counter each, so that a row whose drafts are good does not wait for the others. It
waits in two cases: where rows look at each other, those of a prompt move on together; and with a
cache, where all of a batch read a block for the first time together, which has no drafts, since
they would read what that very read is to put into the cache.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.checks import require
from sake_jax.guidance.compose import Guided
from sake_jax.info import Info
from sake_jax.node import Node
from sake_jax.samplers.canvases import read_canvases, spread_cache
from sake_jax.samplers.noise import gumbel, still
from sake_jax.samplers.sampler import Sampler
from sake_jax.samplers.step import RunProgress, RunState, context, settle, take
from sake_jax.samplers.stop import Stop
from sake_jax.sharding import constrain_rows
from sake_jax.typing import Features, Key, Leaf, Params
from sake_jax.view import Canvas

# A group is rows that move on together. Arrays of groups are (G, M, ...), with G groups of M rows
# each; of their K canvases, the real one first, (G, K, M, ...).


PARENTS = (0, 1, 0, 2, 3, 1, 0, 4, 2, 5, 6, 7, 3, 8, 0)
"""The tree of drafts: of which canvas each is the next, beginning with the first draft; 0 is the
real one. Drafts that are right more often come first."""


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
    ours = sampler.noise in (gumbel, still) or getattr(sampler.noise, "couples_samples", False)
    if by_row or not ours or sampler.record == "full":
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
    cache = spread_cache(sampler, params, state.cache, canvas, size, drafts)
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
    size = group_size(sampler, run.state.canvas)
    loop = _Loop(sampler, params, key, end, stop, drafts, size, skips)
    return jax.lax.while_loop(loop.unfinished, loop.read, run)


class _Reading(Node):
    """What one read of the network gave."""

    canvases: Canvas
    """(G, K, M, ...)"""
    steps: Leaf
    """(G, K) the steps that they are for."""
    features: Leaf
    """(G, K, M, L, D)"""
    cache: Any
    choice: Leaf
    """() which columns a cached read computed again, the same for all rows; None without."""
    alone: Leaf
    """() whether it served the first canvases only, at a block's first step."""


@dataclasses.dataclass(frozen=True)
class _Loop:
    """The loop of a drafted run. States inside it are by group."""

    sampler: Sampler
    params: Params
    key: Key
    end: Array
    stop: Stop | None
    drafts: int
    size: int
    skips: bool

    def unfinished(self, run: RunProgress) -> Array:
        return jnp.any(self.working(self.by_group(run.state)))

    def by_group(self, state: RunState) -> RunState:
        return state.replace(canvas=split(state.canvas, self.size))

    def working(self, state: RunState) -> Array:
        """(G,) which groups have a step to take."""
        left = jnp.any(state.canvas.open & state.canvas.attend, axis=(1, 2))
        return (state.step < self.end) & (left if self.skips else True)

    def following(self, canvas: Canvas, step: Array) -> Array:
        return self.sampler.plan.next_step(canvas, step) if self.skips else step + 1

    def block(self, step: Array) -> Array:
        plan: Any = self.sampler.plan
        return step // plan.steps_per_block

    def read(self, run: RunProgress) -> RunProgress:
        """One read, and all steps that it serves."""
        plan: Any = self.sampler.plan
        kept = run.state.cache
        state = self.by_group(run.state).replace(cache=None)
        active = self.working(state)
        lead = jnp.argmin(jnp.where(active, state.step, plan.steps))
        if plan.cached:  # a read computes one block's columns again, so groups wait for its last
            active = active & (self.block(state.step) == self.block(state.step[lead]))
        canvases, steps = jax.vmap(self.draft)(state, kept.guided, kept.features)
        views = jax.vmap(jax.vmap(plan.view))(canvases, steps)
        features, cache = read_canvases(self.sampler, self.params, views, kept.cache, lead)
        choice = views.reread.choice[lead, 0] if plan.cached else None
        alone = choice >= plan.again if plan.cached else jnp.bool(False)
        reading = _Reading(canvases, steps, features, cache, choice, alone)

        def served(carry: tuple) -> Array:
            return jnp.any(carry[1])

        one_step = functools.partial(self.step, reading)
        carry = (jnp.zeros(active.shape, jnp.int32), active, state, kept.replace(cache=None), run)
        _, _, state, kept, run = jax.lax.while_loop(served, one_step, carry)
        canvas = constrain_rows(join(state.canvas))
        kept = kept.replace(cache=cache, reads=kept.reads + 1)
        return run.replace(state=state.replace(canvas=canvas, cache=kept))

    def draft(self, state: RunState, guided: Guided, features: Features) -> tuple[Canvas, Array]:
        """The canvas of a group and what the next steps would make of it if logits stayed as they
        are, (K, ...), and the steps that these are read for, (K,).

        Drafts are a tree, `PARENTS`. A further guess from the same canvas leaves out the positions
        that the earlier ones wrote: what comes next is more often wrong in where than in what.
        """
        sampler, guided = self.sampler, guided.replace(state=state.guidance)
        copies = lambda x: jnp.broadcast_to(x, (self.drafts, *x.shape))  # noqa: E731
        tree = jax.tree.map(copies, state)
        guessed = jnp.zeros((self.drafts, *state.canvas.open.shape), bool)

        def one(carry: tuple[RunState, Array], edge: tuple[Array, Array]) -> tuple[Any, None]:
            (tree, guessed), (parent, child) = carry, edge
            now, known = jax.tree.map(lambda x: x[parent], (tree, guessed))
            canvas = now.canvas.replace(open=now.canvas.open & ~known)
            view = sampler.plan.view(canvas, now.step)
            ctx = context(sampler, self.params, view, features, now.draw, None)
            begun = now.replace(canvas=canvas)
            after, _ = settle(sampler, self.params, self.key, begun, guided, ctx)
            written = after.canvas.tokens != now.canvas.tokens
            canvas = after.canvas.replace(open=after.canvas.open | (now.canvas.open & known))
            after = after.replace(canvas=canvas, step=self.following(canvas, now.step))
            tree = jax.tree.map(lambda all_of, x: all_of.at[child].set(x), tree, after)
            return (tree, guessed.at[parent].set(known | written)), None

        edges = jnp.array(PARENTS[: self.drafts - 1]), jnp.arange(1, self.drafts)
        (tree, _), _ = jax.lax.scan(one, (tree, guessed), edges)
        return tree.canvas, tree.step

    def step(self, reading: _Reading, carry: tuple) -> tuple:
        """One step of the groups that are active, by the features of the canvas that is there;
        active after it are those for which there are such features again."""
        at, active, state, kept, run = carry
        features = jax.vmap(lambda rows, at: rows[at])(reading.features, at)
        take_one = functools.partial(self.take, reading.choice)
        after, info, guided = jax.vmap(take_one)(state, features)
        canvas = after.canvas
        if self.stop is not None:
            ended = self.stop(join(canvas)).reshape(-1, self.size, 1)
            canvas = canvas.replace(open=canvas.open & ~ended)
        following = jax.vmap(self.following)(canvas, state.step)
        info = info.replace(read=jnp.broadcast_to(kept.reads, canvas.prompt_id.shape))
        run = _record(run, jnp.where(active, state.step, run.taken.size), info, canvas)
        state = _where(active, after.replace(canvas=canvas, step=following), state)
        guided = guided.replace(state=None, reports=())
        kept = kept.replace(
            features=_where(active, features, kept.features),
            guided=_where(active, guided, kept.guided),
        )
        right = self.right(reading, state)
        active = active & self.working(state) & jnp.any(right, axis=1)
        return jnp.argmax(right, axis=1).astype(at.dtype), active, state, kept, run

    def take(
        self, choice: Array | None, state: RunState, features: Features
    ) -> tuple[RunState, Info, Guided]:
        """What follows a step's read, for one group."""
        view = self.sampler.plan.view(state.canvas, state.step)
        if choice is not None and view.reread is not None:
            # The same for all groups, so that a guidance's own read computes no more than it must.
            view = view.replace(reread=view.reread.replace(choice=choice))
        return take(self.sampler, self.params, self.key, state, view, features)

    def right(self, reading: _Reading, state: RunState) -> Array:
        """(G, K) which canvases that were read are the one that is there, for the same step."""
        canvas, drafts = state.canvas, reading.canvases
        same = jnp.all(canvas.tokens[:, None] == drafts.tokens, axis=(2, 3))
        same = same & jnp.all(canvas.open[:, None] == drafts.open, axis=(2, 3))
        same = same & (state.step[:, None] == reading.steps)
        if not self.sampler.plan.cached:
            return same
        inside = self.block(state.step) == self.block(reading.steps[:, 0])
        return same & inside[:, None] & ~reading.alone


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
