"""The preset for models that revise what they have written: uniform noise, drawn anew."""

from typing import Any

from sake_jax.checks import one_of, whole
from sake_jax.core import Guidance, Reveal, declared
from sake_jax.guidance.compose import chain
from sake_jax.guidance.shaping import cooling
from sake_jax.models import LanguageModel
from sake_jax.samplers.noise import Noise, gumbel
from sake_jax.samplers.plans import blocks
from sake_jax.samplers.presets import denoiser_of
from sake_jax.samplers.processes import renoising
from sake_jax.samplers.reveal import entropy_bound
from sake_jax.samplers.sampler import Sampler, sampler
from sake_jax.typing import Number

STEPS, BOUND = 48, 0.1
"""Steps of a window, and the joint error of what one of them keeps, in nats: as published."""


def revising(
    lm: LanguageModel | Any,
    *,
    length: int,
    steps: int | None = None,
    block: int | None = None,
    guidance: Guidance | None = None,
    draw: Guidance | None = None,
    hot: Number = 0.8,
    cold: Number = 0.4,
    reveal: Reveal | None = None,
    confidence: str = "drawn",
    patience: Number = 1,
    doubt: Number = 0.005,
    cache: str = "exact",
    noise: Noise = gumbel,
    record: str = "brief",
) -> Sampler:
    """Block after block from uniform noise, as DiffusionGemma does it: each step keeps the surest
    draws and makes new noise of all others, and a block ends with the likeliest tokens.

    >>> import sake_jax as sj
    >>> from sake_jax.conversion import model_config
    >>> from sake_jax.models import denoiser_for
    >>> denoiser = denoiser_for(model_config("diffusiongemma-26b-a4b").network)
    >>> sampler = sj.revising(denoiser, length=512)
    >>> sampler.plan.blocks, sampler.plan.steps_per_block
    (2, 48)

    Args:
      lm: a loaded model without a mask token, or a denoiser.
      length: columns to write, a multiple of the block.
      steps: in all, the same number for each block at most; 48 for each by default. Steps that
        come after a block is stable and sure are left out by `run_until` and `generate`.
      block: columns of a block; by default as many as the model was trained to write together, or
        all of a length below that.
      guidance: changes the distribution. Classifier-free guidance needs an affine head.
      draw: changes the draw, before `hot` and `cold` do: temperature 0.5 halves both.
      hot: the temperature at a block's first step.
      cold: what it goes down to, evenly: the last step is one step before it.
      reveal: which draws of a step are kept; `reveal.entropy_bound(0.1)` by default.
      confidence: what the rule judges by; see `sampler`.
      patience: a block is finished early when its likeliest tokens have stayed the same for so
        many steps, and
      doubt: the mean entropy of its positions in nats, after temperature, is below this.
      cache: "exact" keeps keys and values of finished text, "none" gives the same tokens.
      noise: where Gumbel noise comes from.
      record: see `sampler`.
    """
    denoiser = denoiser_of(lm)
    one_of("cache", cache, ("none", "exact"))
    length = whole("length", length)
    trained = declared(denoiser, "window") or length
    width = min(trained, length) if block is None else whole("block", block)
    count = max(length // width, 1)
    cooled = cooling(hot, cold)
    shape = {"cache": cache, "ahead": False, "edits": 0}
    return sampler(
        denoiser,
        blocks(length, STEPS * count if steps is None else steps, width, **shape),
        guidance=guidance,
        draw=chain(draw, cooled) if draw else cooled,
        process=renoising(patience, doubt),
        reveal=reveal or entropy_bound(BOUND),
        confidence=confidence,
        noise=noise,
        record=record,
    )
