"""Samplers by the names of what they reproduce."""

from collections.abc import Sequence
from typing import Any

from sake_jax.checks import one_of, require, whole
from sake_jax.core import Guidance, Process, Reveal, declared
from sake_jax.guidance.compose import chain
from sake_jax.guidance.shaping import forbid
from sake_jax.models import LanguageModel, NetworkConfig, NetworkDenoiser
from sake_jax.noise_levels import LogLinear
from sake_jax.samplers.noise import Noise, TokenDraw, gumbel
from sake_jax.samplers.plans import blocks, descent
from sake_jax.samplers.processes import absorbing, editing_process, identity_process, uniform
from sake_jax.samplers.reveal import confidence as most_confident
from sake_jax.samplers.reveal import editing, late
from sake_jax.samplers.reveal import random as in_random_order
from sake_jax.samplers.sampler import Sampler, sampler
from sake_jax.samplers.scores import concrete_score
from sake_jax.typing import Number

ENDS = ("free", "late", "never")
BLOCK = 32
"""Columns of a block of masked decoding where nobody says how many, if they divide the length."""


def denoiser_of(lm: Any) -> Any:
    """A loaded model's denoiser, or the denoiser itself."""
    if not isinstance(lm, LanguageModel):
        return lm
    rule, remedy = "samplers are for diffusion models", "causal ones can score: lm.score"
    require(not lm.config.network.causal, rule, lm.config.family, remedy)
    return lm.denoiser


def _one_each(length: int, steps: int | None) -> int:
    """As many steps as are asked for, or one for each column."""
    return length if steps is None else steps


def masked(
    lm: LanguageModel | Any,
    *,
    length: int,
    steps: int | None = None,
    block: int | None = None,
    guidance: Guidance | None = None,
    draw: Guidance | None = None,
    reveal: Reveal = most_confident,
    confidence: str = "guided",
    cache: str = "none",
    ends: str = "free",
    end_ids: Sequence[int] | None = None,
    pace: str = "even",
    least: Number = 0.0,
    noise: Noise | TokenDraw = gumbel,
    record: str = "brief",
    drafts: int | str = 1,
    refresh: int | None = None,
) -> Sampler:
    """Masked decoding as LLaDA, LLaDA-MoE and Dream do it, semi-autoregressive by blocks.

    >>> import sake_jax as sj
    >>> sampler = sj.masked(
    ...     sj.testing.ToyDenoiser(), length=8, block=4, guidance=sj.sake(1.0), cache="dual"
    ... )
    >>> sampler.plan.steps
    8

    Args:
      lm: a loaded model, or a denoiser.
      length: columns to write.
      steps: one for each column by default.
      block: columns of a block; 32 by default where that divides the length, else all of them.
      guidance: changes the distribution: SAKE, classifier-free, filters.
      draw: changes the draw only, usually `temperature`; 0 is greedy.
      reveal: the order: `reveal.confidence`, `random`, `margin`, `low_entropy`, `coin`,
        `threshold(...)` or `entropy_bound(...)` for several at once with `run_until`.
      confidence: what the order judges by: "guided", "base" or "drawn".
      cache: "none", "prefix" or "dual"; see `blocks`.
      ends: "free"; "late" lets end tokens win last (LLaDA's confidence_eos_eot_inf), "never"
        forbids them (its logits_eos_inf).
      end_ids: the end tokens that `ends` is about; the model's own by default.
      pace: "even", or "truncated" as in Dream's reference.
      least: the noise level after the last step (Dream's eps).
      noise: where Gumbel noise comes from; `still` for none.
      record: see `sampler`.
      drafts: how many canvases one read serves: fewer reads, the same tokens; see `sampler`.
      refresh: steps after which a cache is made new; see `blocks`.
    """
    one_of("ends", ends, ENDS)
    length = whole("length", length)
    if block is None:
        block = BLOCK if length % BLOCK == 0 else length
    if ends != "free":
        own = lm.config.eos_id if isinstance(lm, LanguageModel) else None
        end_ids = end_ids if end_ids is not None else [own] if own is not None else []
        rule, remedy = f"ends={ends!r} needs end tokens", "pass end_ids="
        require(len(end_ids) > 0, rule, end_ids, remedy)
        if ends == "late":
            reveal = late(reveal, end_ids)
        else:
            guidance = chain(forbid(end_ids), *([guidance] if guidance else []))
    predicts_mask = lm.config.predicts_mask if isinstance(lm, LanguageModel) else True
    shape = {"pace": pace, "cache": cache, "least": least, "refresh": refresh}
    return sampler(
        denoiser_of(lm),
        blocks(length, _one_each(length, steps), block, **shape),
        guidance=guidance,
        draw=draw,
        # Where a network never learned to predict the mask token, its logit means nothing.
        process=identity_process(draws_mask=predicts_mask),
        reveal=reveal,
        confidence=confidence,
        noise=noise,
        record=record,
        drafts=drafts,
    )


def ancestral(
    lm: LanguageModel | Any,
    *,
    length: int,
    steps: int | None = None,
    guidance: Guidance | None = None,
    draw: Guidance | None = None,
    process: Process | None = None,
    step: str | None = None,
    final: str | None = None,
    least: Number = 1e-5,
    extra: bool = True,
    reuse: bool | str | None = None,
    noise: Noise | TokenDraw = gumbel,
    record: str = "brief",
) -> Sampler:
    """Ancestral sampling as MDLM, UDLM, SEDD and RADD do it: every position by itself, by its own
    chance.

    >>> import sake_jax as sj
    >>> sampler = sj.ancestral(sj.testing.ToyDenoiser(), length=8, steps=16)
    >>> sampler.plan.steps  # one more for what is still noise
    17

    Args:
      lm: a loaded model, or a denoiser.
      length: columns to write.
      steps: of equal length in time, one for each column by default. MDLM's ddpm, ddpm_cache and
        analytic updates draw from one and the same distribution; they differ in `reuse` and
        `final`.
      guidance: changes the distribution.
      draw: changes the draw only.
      process: by default `concrete_score(...)` for models that predict scores, of others
        `absorbing(...)` for those with a mask token and `uniform()` for those without;
        `remasking(...)` lets written tokens be drawn again (ReMDM), `transitions(...)` has
        matrices of its own (D3PM).
      step: of the default process: "tweedie", the exact one (SEDD's analytic), or "euler".
      final: what is done about the noise that is left: "argmax" (ddpm), "draw" (analytic, SEDD,
        RADD) or "none"; by default "draw" for scores, "argmax" with a mask token, else "none".
      least: the noise level before that.
      extra: whether that is one step more, or the last of the steps (RADD, D3PM).
      reuse: does not read a row again that a step left unchanged (ddpm_cache); by default
        wherever the model does not look at the time. "stale" does so there too, and predicts for
        an earlier time.
      noise: where Gumbel noise comes from.
      record: see `sampler`.
    """
    known = isinstance(lm, LanguageModel)
    has_mask = not known or lm.config.mask_id is not None
    network, denoiser = lm.config.network if known else None, denoiser_of(lm)
    scores = network is not None and network.scores
    rule, remedy = "step is for the process that the model has by itself", "pass it to the process"
    require(process is None or step is None, rule, step, remedy)
    usual = "draw" if scores else "argmax" if has_mask else "none"
    return sampler(
        denoiser,
        descent(length, _one_each(length, steps), final=final or usual, least=least, extra=extra),
        guidance=guidance,
        draw=draw,
        process=process or _own_process(network, has_mask, step or "tweedie"),
        reuse=not declared(denoiser, "reads_time") if reuse is None else reuse,
        noise=noise,
        record=record,
    )


def _own_process(network: NetworkConfig | None, has_mask: bool, step: str) -> Process:
    """How noise is undone by the network of a model, or by one we know nothing about."""
    if network is not None and network.scores:
        graph, scaled = "absorb" if has_mask else "uniform", network.scale_by_sigma
        return concrete_score(graph, noise=network.noise, step=step, scaled=scaled)
    if has_mask:
        # Log-linear noise needs no schedule: the ratio of two times is all.
        noise = None if network is None else network.noise
        return absorbing(None if isinstance(noise, LogLinear) else noise, step)
    rule, remedy = "uniform noise of clean-token networks has exact steps", 'leave out step="euler"'
    require(step == "tweedie", rule, step, remedy)
    return uniform()


def block(
    lm: LanguageModel | Any,
    *,
    length: int,
    steps: int | None = None,
    block: int | None = None,
    guidance: Guidance | None = None,
    draw: Guidance | None = None,
    process: Process | None = None,
    reveal: Reveal | None = None,
    confidence: str = "guided",
    first_hitting: bool | None = None,
    edit: Number | None = None,
    edit_steps: int = 16,
    cache: str | None = None,
    reuse: bool | str = False,
    pace: str = "even",
    noise: Noise | TokenDraw = gumbel,
    record: str = "brief",
    drafts: int | str = 1,
) -> Sampler:
    """Block diffusion as BD3LM, SDAR and LLaDA2 do it: block after block, each by masked diffusion.

    A block looks at itself and the blocks before it, so `length` may be any multiple of the block.
    Make the canvas with `align=` that block; `generate` does.

    >>> import sake_jax as sj
    >>> from sake_jax.models import DiTConfig, NetworkDenoiser
    >>> config = DiTConfig(V=32, D=16, N=1, H=2, F=64, context=16, cond_dim=8, block_size=4)
    >>> sampler = sj.block(NetworkDenoiser(config), length=12)
    >>> sampler.plan.blocks, sampler.plan.steps
    (3, 12)

    Args:
      lm: a loaded model of block diffusion.
      length: columns to write, a multiple of the block.
      steps: in all, the same number for each block; `length` by default. For a process that
        decides by itself they are of equal length in time.
      block: columns of a block; the model's own by default.
      guidance: changes the distribution.
      draw: changes the draw only; `top_p(p, crossing=False)` is BD3LM's nucleus.
      process: `identity_process(draws_mask=False)` where a rule chooses the positions; else
        `absorbing()`.
      reveal: which draws of a step are kept, such as `reveal.confidence`, `leftmost` and
        `dynamic(0.85)` (SDAR's static, sequential and dynamic orders). By default the order of the
        model's family: `reveal.confidence`, or for BD3LM what `first_hitting` says.
      confidence: what the order judges by; see `sampler`. "drawn" is SDAR's and LLaDA2's.
      first_hitting: writes one token a step, at a position drawn uniformly: what sampling in
        ever smaller steps of time comes to, without the steps in which nothing happens
        (Zheng et al. 2025). By default for BD3LM, unless `steps` are given or the model looks at
        the time.
      edit: a written token of the block is replaced by another that is drawn and likelier than
        this (LLaDA2.1); None: what is written stays.
      edit_steps: steps of a block after all of it is written, at most, for `edit`.
      cache: "exact" keeps keys and values of finished blocks, "none" gives the same tokens. By
        default "exact", but "none" for a model that looks at the time: keys of finished blocks
        belong to the noise level that they were computed at, so none can be kept.
      reuse: True does not read a row again that a step left as it was, without a cache. "stale"
        does so also for a model that looks at the time, which then predicts for an earlier time:
        with cache="none" and pace="stretched" that is BD3LM's own sampler.
      pace: "even"; "whole" as SDAR and LLaDA2 count, "stretched" for BD3LM's times; see `blocks`.
      noise: where Gumbel noise comes from.
      record: see `sampler`.
      drafts: how many canvases one read serves: fewer reads, the same tokens; see `sampler`.
    """
    denoiser, size = _block_denoiser(denoiser_of(lm), block)
    timed = declared(denoiser, "reads_time")
    if cache is None:
        cache = "none" if timed or reuse else "exact"
    one_of("cache", cache, ("none", "exact"))
    rule = "cache='exact' needs a network that does not look at the time"
    require(cache == "none" or not timed, rule, "one that does", "leave cache out")
    one_of("pace", pace, ("even", "stretched", "whole"))
    order = lm.config.order if isinstance(lm, LanguageModel) else "random"
    if first_hitting is None:
        first_hitting = order == "random" and reveal is None and steps is None and not timed
        if order == "confidence" and reveal is None:
            reveal = most_confident
    if first_hitting:
        rule, remedy = "first_hitting takes one step for each column", "leave steps out"
        require(steps is None or steps == length, rule, steps, remedy)
        rule = "first_hitting needs a network that does not look at the time"
        remedy = "pass first_hitting=False, and steps= for the number of steps in time"
        require(not timed, rule, "one that does", remedy)
        rule, remedy = "first_hitting is an order of its own", "leave reveal out"
        require(reveal is None, rule, reveal, remedy)
        reveal = in_random_order
    edits = None
    if edit is not None:
        rule, remedy = "edit needs a rule that chooses positions", "pass reveal="
        require(reveal is not None, rule, reveal, remedy)
        reveal = editing(reveal or most_confident, edit)
        edits = whole("edit_steps", edit_steps, at_least=0)
        process = process or editing_process()
    if process is None:
        process = absorbing() if reveal is None else identity_process(draws_mask=False)
    shape = {"pace": pace, "cache": cache, "ahead": False, "edits": edits}
    return sampler(
        denoiser,
        blocks(length, _one_each(length, steps), size, **shape),
        guidance=guidance,
        draw=draw,
        process=process,
        reveal=reveal,
        confidence=confidence,
        reuse=reuse,
        noise=noise,
        record=record,
        drafts=drafts,
    )


def _block_denoiser(denoiser: Any, block: int | None) -> tuple[Any, int]:
    """The denoiser with blocks of this size, and that size; its own by default."""
    size = declared(denoiser, "block_size")
    rule, remedy = "block needs a model of block diffusion", "use masked, ancestral or revising"
    require(size > 0, rule, type(denoiser).__name__, remedy)
    if block is None or block == size:
        return denoiser, size
    rule, remedy = "a denoiser of your own has one block size", f"leave block out: it is {size}"
    require(isinstance(denoiser, NetworkDenoiser), rule, block, remedy)
    return denoiser.with_block(whole("block", block)), block
