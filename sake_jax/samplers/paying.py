"""How many drafts pay: a read of several canvases is free where a device waits for its memory."""

import jax
import jax.numpy as jnp

from sake_jax.chips import Chip, local_chip
from sake_jax.core import declared
from sake_jax.samplers.plans import Blocks
from sake_jax.samplers.sampler import Sampler
from sake_jax.sharding import mesh_of
from sake_jax.typing import Params
from sake_jax.view import Canvas

STEPS_PER_READ = {1: 1.0, 2: 1.48, 4: 1.72, 8: 1.9}
"""See `steps_per_read`."""


def steps_per_read(drafts: int) -> float:
    """How many steps a read of 1, 2, 4 or 8 canvases served on the built-in model, at temperature
    0.9 and one token a step; `benchmarks/drafts.py` measures it.

    >>> steps_per_read(1)  # without drafts
    1.0
    """
    return STEPS_PER_READ[drafts]


def drafts_of(sampler: Sampler, params: Params, canvas: Canvas) -> int:
    """How many canvases a read serves."""
    if sampler.drafts != "auto":
        return int(sampler.drafts)
    chip = local_chip()
    remembers = declared(sampler.denoiser, "remember") is not None
    foreign = sampler.plan.cached and not isinstance(sampler.plan, Blocks)
    refreshed = getattr(sampler.plan, "refresh", None) is not None
    if chip is None or sampler.reuse or remembers or foreign or refreshed:
        return 1
    leaves, mesh = jax.tree.leaves(params), mesh_of(params)
    size = sum(leaf.size for leaf in leaves)
    weights = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    rows = canvas.tokens.shape[0] / (mesh.shape.get("data", 1) if mesh else 1)
    columns = canvas.tokens.shape[1]
    reread = sampler.plan.view(canvas, jnp.int32(0)).reread
    if reread is not None and reread.spans[0] is not None:  # that of most steps, or the widest
        columns = sum(reread.spans[0])
    return drafts_that_pay(chip, weights, size, rows * columns)


def drafts_that_pay(chip: Chip, weights: float, size: float, tokens: float) -> int:
    """With how many canvases of so many tokens together the chip takes most steps a second, if
    each read has all weights (bytes) pass by, or computes with all parameters (their number).

    >>> from sake_jax.chips import CHIPS
    >>> drafts_that_pay(CHIPS["v6e"], 16e9, 8e9, tokens=32)  # a window of 32 columns
    8
    >>> drafts_that_pay(CHIPS["v6e"], 16e9, 8e9, tokens=256)  # eight of them
    2
    >>> drafts_that_pay(CHIPS["v6e"], 16e9, 8e9, tokens=1024)  # a whole canvas
    1
    """

    def seconds(drafts: int) -> float:
        return max(weights / chip.bandwidth, 2 * size * tokens * drafts / chip.flops)

    # Of those that are equally good the fewest.
    return max(STEPS_PER_READ, key=lambda drafts: STEPS_PER_READ[drafts] / seconds(drafts))


def at_most(sampler: Sampler, steps: int) -> Sampler:
    """The sampler for a run that is looked at every so many steps: no read serves more."""
    auto = sampler.drafts == "auto"
    fits = steps > 1 if auto else int(sampler.drafts) <= steps
    return sampler if fits else sampler.replace(drafts=steps)
