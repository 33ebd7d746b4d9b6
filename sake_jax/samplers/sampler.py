"""A sampler: the parts of a run, put together and checked."""

import dataclasses
from typing import Any

import jax
from flax import struct

from sake_jax.checks import one_of, require
from sake_jax.core import Denoiser, Guidance, Plan, Process, Reveal, declared
from sake_jax.guidance.compose import Chain, chain, identity, only_shapes
from sake_jax.guidance.shaping import is_greedy
from sake_jax.info import RECORDS
from sake_jax.node import Node
from sake_jax.samplers.noise import Noise, TokenDraw, gumbel, still
from sake_jax.samplers.plans import Blocks
from sake_jax.samplers.processes import Identity
from sake_jax.samplers.reveal import as_rule, everything
from sake_jax.samplers.reveal import confidence as most_confident

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
    if isinstance(plan, Blocks) and plan.pace == "even" and not process.decides:
        rule = f"steps must be at most length ({plan.length}): a step writes a token or more"
        require(plan.blocks * plan.writing <= plan.length, rule, plan.steps, "lower steps")
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
