"""A sampler: the parts of a run, put together and checked."""

import dataclasses
from typing import Any

import jax
from flax import struct

from sake_jax.checks import one_of, require, whole
from sake_jax.core import Denoiser, Guidance, Plan, Process, Reveal, declared
from sake_jax.guidance.compose import Chain, chain, identity, only_shapes
from sake_jax.guidance.shaping import is_greedy
from sake_jax.info import RECORDS
from sake_jax.node import Node
from sake_jax.samplers.noise import Noise, TokenDraw, gumbel, still
from sake_jax.samplers.plans import Blocks
from sake_jax.samplers.processes import Identity, Remasking
from sake_jax.samplers.reveal import as_rule, everything
from sake_jax.samplers.reveal import confidence as most_confident

MOST_DRAFTS = 16
"""Canvases of a row that one read may serve."""
CONFIDENCES = ("guided", "base", "drawn")


class Sampler(Node):
    """Everything a run needs but parameters, key and canvas. Numbers are leaves.

    >>> import sake_jax as sj
    >>> made = sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(8, 8))
    >>> made.replace(record="signal", guidance=sj.sake(1.0)).record
    'signal'
    """

    denoiser: Any
    process: Any
    guidance: Chain
    draw: Chain
    """Shapes what is drawn, but not the logits the reveal rule sees."""
    plan: Plan
    reveal: Any
    noise: Noise | TokenDraw = struct.field(pytree_node=False)
    confidence: str = struct.field(pytree_node=False, default="guided")
    """Which logits the reveal rule sees."""
    reuse: bool | str = struct.field(pytree_node=False, default=False)
    """Whether a row that did not change is not read again; "stale" also where it should be."""
    record: str = struct.field(pytree_node=False, default="brief")
    drafts: int | str = struct.field(pytree_node=False, default=1)
    """How many canvases of a row are read together; "auto": as many as pay on the device."""

    @property
    def couples_samples(self) -> bool:
        """Whether rows of one prompt look at each other, so that they must stay in one batch."""
        parts = (self.guidance, self.draw, self.reveal, self.noise)
        return any(getattr(part, "couples_samples", False) for part in parts)

    def replace(self, **changes: Any) -> "Sampler":
        """A copy with other parts, put together by the rules of `sampler`."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if "draw" in changes and self.noise is still and _is_greedy(self.draw):
            fields["noise"] = gumbel  # it was left out for the sake of the draw before
        return sampler(**fields | changes)


def sampler(
    denoiser: Denoiser,
    plan: Plan,
    *,
    guidance: Guidance | None = None,
    draw: Guidance | None = None,
    process: Process | None = None,
    reveal: Reveal | None = None,
    noise: Noise | TokenDraw = gumbel,
    confidence: str = "guided",
    reuse: bool | str = False,
    record: str = "brief",
    drafts: int | str = 1,
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
      reuse: does not read a row again that the last step left as it was. For plans without a
        cache, and denoisers that do not look at the time; "stale" for these too, which then
        predict for an earlier time, as BD3LM's reference does.
      noise: where Gumbel noise comes from; replace it to replay recorded noise. None is made
        where `draw` has temperature 0. `systematic()`: samples of a prompt share out their draws.
      record: "brief"; "signal" for telemetry that needs base and guided logits, "full"
        for the likeliest candidates and the kernel's weights at every position too.
      drafts: how many canvases of a row are read together: the one that is there, and drafts of
        what the next steps will make of it. As long as these turn out right, one read serves
        several steps; what is written is the same. 1: every step reads. "auto": as many as pay
        on the device, 1 on a CPU. `run`, `run_until`, `stream` and `generate` use it.
    """
    one_of("record", record, RECORDS)
    one_of("confidence", confidence, CONFIDENCES)
    _check_denoiser(denoiser)
    process = process or Identity()
    draw = chain(identity(), *([draw] if draw else []))
    if noise is gumbel and _is_greedy(draw):
        noise = still
    rule = "draw must only shape logits (temperature, filters)"
    require(only_shapes(draw), rule, draw, "put other guidances in guidance=")
    if reuse:
        require(reuse in (True, "stale"), "reuse must be True, False or 'stale'", reuse, "pick one")
        rule = "reuse=True needs a denoiser that does not look at the time"
        remedy = "leave it out, or pass reuse='stale' to predict from an earlier time"
        timed = declared(denoiser, "reads_time")
        require(not timed or reuse == "stale", rule, "one that does", remedy)
        rule, remedy = "reuse is for plans without a cache", "leave reuse or the cache out"
        require(not plan.cached, rule, f"cache={getattr(plan, 'cache', True)!r}", remedy)
        rule, remedy = "reuse needs a denoiser that is not told what it predicted", "leave it out"
        require(declared(denoiser, "remember") is None, rule, "one that is", remedy)
    if plan.cached:
        rule, remedy = "a plan with a cache needs denoiser.empty_cache", "use cache='none'"
        require(declared(denoiser, "empty_cache"), rule, type(denoiser).__name__, remedy)
    _check_drafts(drafts, denoiser, plan, reuse)
    if isinstance(plan, Blocks) and plan.pace == "even" and not process.decides:
        rule = f"steps must be at most length ({plan.length}): a step writes a token or more"
        require(plan.blocks * plan.writing <= plan.length, rule, plan.steps, "lower steps")
    guidance = chain(identity(), *([guidance] if guidance else []))
    rule_of_reveal = as_rule(reveal or (everything if process.decides else most_confident))
    if guidance.joint:
        _check_joint(process, rule_of_reveal, noise, plan)
    return Sampler(
        denoiser=denoiser,
        process=process,
        guidance=guidance,
        draw=draw,
        plan=plan,
        reveal=rule_of_reveal,
        noise=noise,
        confidence=confidence,
        reuse=reuse,
        record=record,
        drafts=drafts,
    )


def _check_drafts(drafts: int | str, denoiser: Denoiser, plan: Plan, reuse: bool | str) -> None:
    """Refuses drafts that cannot be read, or that would change what is read."""
    if drafts == "auto":
        return
    if whole("drafts", drafts, at_most=MOST_DRAFTS) == 1:
        return
    rule, remedy = "drafts and reuse both save reads", "leave one of them out"
    require(not reuse, rule, f"drafts={drafts}, reuse={reuse!r}", remedy)
    rule = "drafts need a denoiser that is not told what it predicted"
    remedy = "leave drafts out: nobody knows that before the steps between are taken"
    require(declared(denoiser, "remember") is None, rule, "one that is", remedy)
    rule, remedy = "drafts with a cache are for plans of blocks", "use blocks(...), or no cache"
    require(not plan.cached or isinstance(plan, Blocks), rule, type(plan).__name__, remedy)
    rule = "drafts need a cache that is made new at a block's first step alone"
    again = getattr(plan, "refresh", None)  # rows are at different steps, and share a read
    require(again is None, rule, f"refresh={again}", "leave refresh or drafts out")


def _check_joint(process: Process, reveal: Reveal, noise: Noise | TokenDraw, plan: Plan) -> None:
    """A joint draw holds together only where nothing is drawn beside it."""
    rule, remedy = "a form needs noise for its own draw", "leave noise out, or the form"
    require(not isinstance(noise, TokenDraw), rule, noise, remedy)
    stands = not process.revises or isinstance(process, Remasking)
    at_once = process.decides and reveal == as_rule(everything)
    at_once = at_once and getattr(plan, "edits", None) is None
    rule = "a form needs a process that leaves written tokens, or draws all of them again together"
    remedy = "use masked, block or ancestral, without edits; under uniform noise without reveal"
    require(stands or at_once, rule, (process, reveal), remedy)


def _is_greedy(draw: Chain) -> bool:
    return any(is_greedy(part) for part in draw.parts)


def _check_denoiser(denoiser: Denoiser) -> None:
    rule, remedy = "denoiser must have read, head, tables and affine", "see sake_jax.Denoiser"
    require(isinstance(denoiser, Denoiser), rule, denoiser, remedy)
    leaves = jax.tree.leaves(denoiser)
    rule, remedy = "denoiser must be a pytree", "derive it from sake_jax.Node"
    require(not any(leaf is denoiser for leaf in leaves), rule, denoiser, remedy)
    rule, remedy = "denoiser.affine must be a class variable", "annotate it as ClassVar[bool]"
    require(not any(isinstance(leaf, bool) for leaf in leaves), rule, denoiser, remedy)
