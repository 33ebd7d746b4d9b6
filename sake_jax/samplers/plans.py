"""Plans: which columns are read and written at which step."""

import math

import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import number, one_of, require, whole
from sake_jax.node import Node
from sake_jax.typing import Number
from sake_jax.view import Canvas, Reread, View

PACES = ("even", "truncated", "stretched", "whole")
CACHES = ("none", "prefix", "dual", "exact")
FINALS = ("argmax", "draw", "none")
NEARLY_ZERO = 1e-30
LONGEST = 2**24
"""Columns of a plan and steps it takes, at most: the canvas and its records are arrays."""


def view_of(
    canvas: Canvas, window_start: Array, width: int, time: Array, next_time: Array, progress: Array
) -> View:
    """A window of a canvas at a noise level; its quota is all that is open there."""
    batch = canvas.tokens.shape[0]
    view = View(
        canvas=canvas,
        window_start=jnp.asarray(window_start, jnp.int32),
        time=jnp.full(batch, time),
        next_time=jnp.full(batch, next_time),
        progress=jnp.full(batch, progress),
        quota=jnp.zeros(batch, jnp.int32),
        width=width,
    )
    return view.replace(quota=jnp.sum(view.window(canvas.open & canvas.attend), axis=1))


def check_length(canvas: Canvas, length: int) -> None:
    """Refuses a canvas that does not have the columns a plan writes."""
    there = canvas.tokens.shape[1] - canvas.generation_start
    rule = f"the canvas must have {length} columns to write, as the plan has"
    require(there == length, rule, there, "match them")


class Blocks(Node):
    """Blocks from left to right, the same number of steps for each; one block is plain."""

    blocks: int = struct.field(pytree_node=False)
    width: int = struct.field(pytree_node=False)
    steps_per_block: int = struct.field(pytree_node=False)
    pace: str = struct.field(pytree_node=False, default="even")
    cache: str = struct.field(pytree_node=False, default="none")
    least: Number = 0.0
    """The noise level after the last step; 0: all noise is gone."""
    ahead: bool = struct.field(pytree_node=False, default=True)
    """Whether columns after the block take part in a step."""
    edits: int | None = struct.field(pytree_node=False, default=None)
    """Of a block's steps, those after it is written, in which tokens may only be replaced. None
    is for processes that never replace what is written, or always may."""
    refresh: int | None = struct.field(pytree_node=False, default=None)
    """With a cache, everything is read again at every so many steps of a block; None: only at its
    first step."""

    @property
    def steps(self) -> int:
        return self.blocks * self.steps_per_block

    @property
    def writing(self) -> int:
        """Steps in which a block is written."""
        return self.steps_per_block - (self.edits or 0)

    @property
    def length(self) -> int:
        return self.blocks * self.width

    @property
    def cached(self) -> bool:
        return self.cache != "none"

    def view(self, canvas: Canvas, step: Array) -> View:
        check_length(canvas, self.length)
        block, inner = step // self.steps_per_block, step % self.steps_per_block
        time, next_time = self._times(inner)
        start = canvas.generation_start + block * self.width
        progress = step.astype(jnp.float32) / self.steps
        view = view_of(canvas, start, self.width, time, next_time, progress)
        view = view.replace(reread=self._reread(block, inner))
        if not self.ahead:
            before_end = jnp.arange(canvas.tokens.shape[1])[None, :] < start + self.width
            view = view.replace(attend=view.attend & before_end)
        if self.edits is not None:
            view = self._edited(view, inner)
        if self.pace == "whole":
            each, more = divmod(self.width, self.writing)
            return view.replace(
                quota=jnp.minimum(view.quota, each + (inner < more).astype(jnp.int32))
            )
        if self.pace != "truncated":  # so that the last step leaves none
            return view.replace(quota=-(-view.quota // jnp.maximum(self.writing - inner, 1)))
        share = view.quota.astype(jnp.float32) * (1 - view.next_time / view.time)
        return view.replace(quota=share.astype(jnp.int32))

    def _edited(self, view: View, inner: Array) -> View:
        """The view where written tokens stay open: a row whose window is all written waits for the
        steps that are for edits, so that its steps do not depend on the rows beside it."""
        last = inner == self.steps_per_block - 1
        if view.mask_id is None:
            return view.replace(closes=last)
        masks = view.open & (view.tokens == view.mask_id)
        count = jnp.sum(view.window(masks & view.attend), axis=1)
        waits = (inner < self.writing) & (count == 0)
        return view.replace(
            open=view.open & ~waits[:, None],
            quota=count,
            closes=last | (self.edits == 0),
        )

    def _reread(self, block: Array, inner: Array) -> Reread | None:
        """What a cached read recomputes at a block's step; everything at a block's first step, and
        at those that refresh, but for an exact cache."""
        if not self.cached:
            return None
        window, first = (0, self.width), inner % (self.refresh or self.steps_per_block) == 0
        if self.cache == "dual":
            return Reread(jnp.where(first, 1, 0), (window, None))
        if self.cache == "exact":
            # The block before this one was read while it was being written: once more, clean,
            # so that its keys are those of the finished text. A run's first step reads all.
            before = (self.width, self.width)
            choice = jnp.where(first, jnp.where(block == 0, 2, 1), 0)
            return Reread(choice, (window, before, None))
        # "prefix": the block and all that follows it, which is less for every later block.
        tails = tuple((0, self.length - b * self.width) for b in range(self.blocks))
        return Reread(jnp.where(first, self.blocks, block), (*tails, None))

    @property
    def again(self) -> int:
        """How many of a cached read's spans are for the steps after a block's first, in which the
        window's columns alone may have changed; they stand first."""
        return self.blocks if self.cache == "prefix" else 1

    def next_step(self, canvas: Canvas, step: Array) -> Array:
        """The next step that has something to do: a finished block's other steps have not."""
        block = step // self.steps_per_block
        start = canvas.generation_start + block * self.width
        column = jnp.arange(canvas.tokens.shape[1])[None, :]
        inside = (column >= start) & (column < start + self.width)
        left = canvas.open & canvas.attend & inside
        after = jnp.where(jnp.any(left), step + 1, (block + 1) * self.steps_per_block)
        if self.edits is None or canvas.mask_id is None:
            return after
        # What is written of a block waits for the steps that edit it.
        editing = block * self.steps_per_block + self.writing
        noise = jnp.any(left & (canvas.tokens == canvas.mask_id))
        return jnp.where(noise | ~jnp.any(left), after, jnp.maximum(after, editing))

    def _times(self, inner: Array) -> tuple[Array, Array]:
        """t and s of a block's step."""
        span, count = 1 - jnp.asarray(self.least, jnp.float32), self.writing
        inner = jnp.minimum(inner, count - 1)  # edits are at the cleanest level
        time = 1 - span * inner.astype(jnp.float32) / count
        next_time = 1 - span * (inner + 1).astype(jnp.float32) / count
        last = inner + 1 == count
        if self.pace == "truncated":
            return time, jnp.where(last, 0.0, next_time)
        if self.pace == "stretched":
            time = 1 - inner.astype(jnp.float32) / max(count - 1, 1)
            # At t = 0, where the reference divides by 0, all that is left is drawn. A network that
            # looks at the time is told what is as good as 0.
            return jnp.where(last, NEARLY_ZERO, time), jnp.where(
                last, 0.0, jnp.maximum(time - 1 / count, 0)
            )
        return time, next_time


def blocks(
    length: int,
    steps: int,
    block: int | None = None,
    *,
    pace: str = "even",
    cache: str = "none",
    least: Number = 0.0,
    ahead: bool = True,
    edits: int | None = None,
    refresh: int | None = None,
) -> Blocks:
    """Writes `length` columns in `steps` steps, `block` columns at a time (all by default).

    >>> import sake_jax as sj
    >>> sj.blocks(length=64, steps=32, block=16).steps_per_block
    8

    Args:
      length: columns to write.
      steps: in all, the same number for each block.
      block: columns of a block; must divide `length`.
      pace: "even" writes ⌈open / steps left⌉ columns a step; "truncated" is Dream's reference,
        ⌊open (1 - s/t)⌋ and the rest at the last step; "whole" is SDAR's and LLaDA2's, as many as
        if the whole block were open, the earliest steps one more where steps do not divide it: a
        block that a prompt has begun is done sooner. For processes that decide by themselves,
        "even" divides the time evenly; "stretched" is BD3LM's reference, steps of length
        1 / steps at times that are 1 / (steps - 1) apart.
      cache: "none"; "prefix" recomputes the block and what follows, "dual" the block alone
        (Fast-dLLM), and both read everything at the first step of a block. "exact" is for
        networks that never look ahead of a block: it reads each block once more when it is done.
      least: the noise level after the last step.
      ahead: whether columns after the block take part in a step; not in block diffusion, where
        neither the network nor a guidance shall see text that has not begun.
      edits: further steps of each block, after it is written, for processes and reveal rules that
        replace written tokens (LLaDA2.1); a block in which a step changes nothing is done. Without
        a mask token nothing is unwritten, and all of a block's steps replace tokens: its last one
        ends that.
      refresh: for "prefix" and "dual": everything is read again at every so many steps of a block,
        not at its first alone. 1 writes the tokens of cache="none"; more is faster and further
        from them.
    """
    length = whole("length", length, at_most=LONGEST)
    steps = whole("steps", steps, at_most=LONGEST)
    block = length if block is None else whole("block", block)
    rule = "length must be a multiple of block"
    longer = block * -(-length // block)
    remedy = f"use a length of {longer}, or blocks of {math.gcd(length, block)}"
    require(length % block == 0, rule, (length, block), remedy)
    count = length // block
    rule = f"steps must be a multiple of the {count} blocks and at least one for each"
    require(steps >= count and steps % count == 0, rule, steps, f"use {count * -(-steps // count)}")
    one_of("pace", pace, PACES)
    one_of("cache", cache, CACHES)
    least = number("least", least, at_least=0, at_most=0.999, schedule=False)
    rule, remedy = "cache='exact' must not look ahead", "pass ahead=False"
    require(cache != "exact" or not ahead, rule, ahead, remedy)
    if refresh is not None:
        rule, remedy = "refresh is for cache='prefix' and 'dual'", "leave refresh out"
        require(cache in ("prefix", "dual"), rule, f"cache={cache!r}", remedy)
        refresh = whole("refresh", refresh)
    more = 0 if edits is None else whole("edits", edits, at_least=0)
    return Blocks(count, block, steps // count + more, pace, cache, least, ahead, edits, refresh)


class Descent(Node):
    """All columns together, from t = 1 down in even steps of time, then what noise is left."""

    width: int = struct.field(pytree_node=False)
    moves: int = struct.field(pytree_node=False)
    final: str = struct.field(pytree_node=False, default="argmax")
    least: Number = 1e-5
    extra: bool = struct.field(pytree_node=False, default=True)

    @property
    def length(self) -> int:
        return self.width

    @property
    def steps(self) -> int:
        return self.moves + (self.extra and self.final != "none")

    @property
    def cached(self) -> bool:
        return False

    def view(self, canvas: Canvas, step: Array) -> View:
        check_length(canvas, self.width)
        span = 1 - jnp.asarray(self.least, jnp.float32)
        time = 1 - span * (step.astype(jnp.float32) / self.moves)
        last = step == (self.steps if self.final == "none" else self.steps - 1)
        next_time = jnp.where(last, 0.0, time - span / self.moves)
        progress = step.astype(jnp.float32) / self.steps
        start = jnp.int32(canvas.generation_start)
        view = view_of(canvas, start, self.width, time, next_time, progress)
        return view.replace(greedy=last) if self.final == "argmax" else view

    def next_step(self, canvas: Canvas, step: Array) -> Array:
        """The next step, or the end where nothing is open."""
        left = jnp.any(canvas.open & canvas.attend)
        return jnp.where(left, step + 1, self.steps)


def descent(
    length: int, steps: int, *, final: str = "argmax", least: Number = 1e-5, extra: bool = True
) -> Descent:
    """Ancestral sampling's timetable, as MDLM's: `steps` from t = 1 to `least`.

    >>> import sake_jax as sj
    >>> sj.descent(length=64, steps=128, final="none").steps
    128

    Args:
      length: columns to write, all at once.
      steps: of equal length in time; more than `length` is fine.
      final: a last step for what is still noise: "argmax" takes the likeliest tokens, "draw"
        draws them, "none" leaves it.
      least: the noise level before that step.
      extra: whether that is one step more (MDLM, SEDD), or the last of the steps, which then leads
        all the way (RADD, D3PM).
    """
    one_of("final", final, FINALS)
    length = whole("length", length, at_most=LONGEST)
    steps = whole("steps", steps, at_most=LONGEST)
    least = number("least", least, above=0, at_most=0.999, schedule=False)
    return Descent(length, steps, final, least, extra)
