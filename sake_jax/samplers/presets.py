"""Samplers by the names of what they reproduce."""

from collections.abc import Sequence
from typing import Any

from sake_jax.checks import one_of, require
from sake_jax.core import Guidance, Process, Reveal
from sake_jax.guidance.compose import chain
from sake_jax.guidance.shaping import forbid
from sake_jax.models import LanguageModel, NetworkConfig
from sake_jax.noise_levels import LogLinear
from sake_jax.samplers.noise import Noise, gumbel
from sake_jax.samplers.plans import blocks, descent
from sake_jax.samplers.processes import absorbing, identity_process, uniform
from sake_jax.samplers.reveal import confidence as most_confident
from sake_jax.samplers.reveal import late
from sake_jax.samplers.reveal import random as in_random_order
from sake_jax.samplers.scores import concrete_score
from sake_jax.samplers.step import Sampler, sampler
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
    noise: Noise = gumbel,
    record: str = "brief",
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
    """
    one_of("ends", ends, ENDS)
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
    return sampler(
        denoiser_of(lm),
        blocks(length, _one_each(length, steps), block, pace=pace, cache=cache, least=least),
        guidance=guidance,
        draw=draw,
        # Where a network never learned to predict the mask token, its logit means nothing.
        process=identity_process(draws_mask=predicts_mask),
        reveal=reveal,
        confidence=confidence,
        noise=noise,
        record=record,
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
    reuse: bool | None = None,
    noise: Noise = gumbel,
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
      reuse: does not read a canvas again that a step left unchanged (ddpm_cache); by default
        wherever the model does not look at the time.
      noise: where Gumbel noise comes from.
      record: see `sampler`.
    """
    known = isinstance(lm, LanguageModel)
    has_mask = not known or lm.config.mask_id is not None
    network = lm.config.network if known else None
    timed, scores = (network.time_conditioning, network.scores) if network else (False, False)
    rule, remedy = "step is for the process that the model has by itself", "pass it to the process"
    require(process is None or step is None, rule, step, remedy)
    usual = "draw" if scores else "argmax" if has_mask else "none"
    return sampler(
        denoiser_of(lm),
        descent(length, _one_each(length, steps), final=final or usual, least=least, extra=extra),
        guidance=guidance,
        draw=draw,
        process=process or _own_process(network, has_mask, step or "tweedie"),
        reuse=not timed if reuse is None else reuse,
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
    guidance: Guidance | None = None,
    draw: Guidance | None = None,
    first_hitting: bool | None = None,
    cache: str = "exact",
    pace: str = "even",
    noise: Noise = gumbel,
    record: str = "brief",
) -> Sampler:
    """Block diffusion as BD3LM does it: block after block, each by masked diffusion.

    A block looks at itself and the blocks before it, as far back as the model's context, so
    `length` may be any multiple of the model's block. Make the canvas with `align=` that block.

    >>> import sake_jax as sj
    >>> from sake_jax.models import DiTConfig, NetworkDenoiser
    >>> config = DiTConfig(V=32, D=16, N=1, H=2, F=64, context=16, cond_dim=8, block_size=4)
    >>> sampler = sj.block(NetworkDenoiser(config), length=12)
    >>> sampler.plan.blocks, sampler.plan.steps
    (3, 12)

    Args:
      lm: a loaded model of block diffusion.
      length: columns to write, a multiple of the block.
      steps: of equal length in time, in all, the same number for each block; `length` by default.
        None with `first_hitting`, which takes one for each column.
      guidance: changes the distribution.
      draw: changes the draw only; `top_p(p, crossing=False)` is the reference's nucleus.
      first_hitting: writes one token a step, at a position drawn uniformly: what sampling in
        ever smaller steps of time comes to, without the steps in which nothing happens
        (Zheng et al. 2025). By default unless `steps` are given.
      cache: "exact" keeps keys and values of finished blocks; "none" gives the same tokens.
      pace: "even", or "stretched" for the reference's times; see `blocks`.
      noise: where Gumbel noise comes from.
      record: see `sampler`.
    """
    denoiser = denoiser_of(lm)
    config = getattr(denoiser, "config", None)
    size = getattr(config, "block_size", 0)
    rule, remedy = "block needs a model of block diffusion", "use masked or ancestral"
    require(size > 0, rule, config or denoiser, remedy)
    one_of("cache", cache, ("none", "exact"))
    one_of("pace", pace, ("even", "stretched"))
    first_hitting = steps is None if first_hitting is None else first_hitting
    if first_hitting:
        rule, remedy = "first_hitting takes one step for each column", "leave steps out"
        require(steps is None or steps == length, rule, steps, remedy)
        rule = "first_hitting needs a network that does not look at the time"
        require(not getattr(config, "time_conditioning", False), rule, config, "turn it off")
    return sampler(
        denoiser,
        blocks(length, _one_each(length, steps), size, pace=pace, cache=cache, ahead=False),
        guidance=guidance,
        draw=draw,
        process=identity_process(draws_mask=False) if first_hitting else absorbing(),
        reveal=in_random_order if first_hitting else None,
        noise=noise,
        record=record,
    )
