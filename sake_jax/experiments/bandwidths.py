"""The bandwidths that the experiment on sensitivity tries, as settings of one guidance."""

import jax.numpy as jnp

import sake_jax as sj
from sake_jax.experiments.study import Cell
from sake_jax.guidance import Diversity, median_distance
from sake_jax.typing import Leaf, Number

SIGMAS = (2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 120.0)
"""Around √D, the size of rows that are normalised: 16 for the model in the box."""
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
ATTENTION = (2.0, 5.0, 10.0, 40.0, 80.0, 300.0)
"""Beside the heuristic's own value."""
SYMBOLS = {"bandwidth": "σ", "multiple": "σ / median", "attention": "σ_attn"}
"""What is swept: σ as a number, σ as a multiple of the rows' median distance, and σ_attn."""


class MedianReport(sj.Node):
    """What a guidance saw of its rows at a step."""

    median: Leaf
    """(B,) the median distance of a sequence's rows."""


class Widths(sj.Guidance):
    """SAKE with σ = bandwidth + multiple · median distance of the rows at each step.

    One program serves every setting, the unguided one too. It reports the median, then what SAKE
    reports.
    """

    inner: Diversity
    bandwidth: Number
    multiple: Number

    @property
    def couples_samples(self):
        return self.inner.couples_samples

    def init(self, ctx):
        return self.inner.init(ctx)

    def push(self, state, ctx):
        middle = median_distance(ctx)
        sigma = self.bandwidth + self.multiple * middle
        pushed, state = self.inner.replace(bandwidth=sigma).push(state, ctx)
        # The median goes on to `apply` of this step; only SAKE's state is carried to the next.
        return pushed, (MedianReport(middle.astype(jnp.float32)), state)

    def apply(self, logits, psi, state, ctx):
        middle, inner = state
        logits, inner, report = self.inner.apply(logits, psi, inner, ctx)
        return logits, inner, (middle, report)


def heuristic(length: int) -> float:
    """The σ_attn whose attention has vanished at the other end of a sample."""
    return round(sj.vanishing(length), 1)


def unguided(length: int) -> Cell:
    """Heuristics for both bandwidths, and no strength: only what is recorded depends on them."""
    return {"strength": 0.0, "bandwidth": 0.0, "multiple": 1.0, "attention": heuristic(length)}


def sweeps(length: int, strength: float, quick: bool) -> dict[str, list[Cell]]:
    """The settings of each sweep, by what is swept; a quick one keeps three of each."""
    vanished = heuristic(length)
    attention = sorted((*ATTENTION, vanished))
    if quick:
        attention = [ATTENTION[0], vanished, ATTENTION[-1]]
    values = {"bandwidth": SIGMAS, "multiple": MULTIPLES, "attention": attention}
    sweeps = {}
    for name, numbers in values.items():
        kept = numbers[:: len(numbers) // 2] if quick and name != "attention" else numbers
        base = unguided(length) | {"strength": strength}
        base = base | {"multiple": 0.0} if name == "bandwidth" else base
        sweeps[name] = [base | {name: value} for value in kept]
    return sweeps


def guidance(setting: Cell, normalize: str) -> sj.Guidance:
    """SAKE with a setting's bandwidths."""
    widths = {"bandwidth": 1.0, "attention_bandwidth": setting["attention"]}
    sake = sj.sake(setting["strength"], normalize=normalize, **widths)
    return Widths(sake, setting["bandwidth"], setting["multiple"])
