"""What is compared where problems have right answers: guidances, draws and orders of writing.

Every method has the same number of settings, and runs in every order.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import sake_jax as sj
from sake_jax.samplers import Sampler
from sake_jax.typing import Number

BASELINE = "temperature"
ORDERS: dict[str, Callable[[], Any]] = {
    "confidence": lambda: sj.reveal.confidence,
    "tempered": lambda: sj.reveal.tempered(1.0),
    "random": lambda: sj.reveal.random,
}
"""In which order positions are written: the surest first, drawn by how sure they are, any."""
EVEN: dict[str, Callable[[], Any]] = {
    "confidence": lambda: sj.reveal.stratified(sj.reveal.confidence),
    "tempered": lambda: sj.reveal.tempered(1.0, systematic=True),
    "random": lambda: sj.reveal.stratified(sj.reveal.random),
}
"""The same, but samples of a prompt do not begin at the same place by chance."""

Setting = tuple[float, float]
"""A number of the method's own, and the temperature of the draw."""


@dataclasses.dataclass(frozen=True)
class SolveMethod:
    """Parts of a sampler, by a number of the method's own."""

    settings: tuple[Setting, ...]
    guidance: Callable[[float], sj.Guidance] | None = None
    draw: Callable[[float, float], sj.Guidance] = lambda _, heat: sj.temperature(heat)
    orders: dict[str, Callable[[], Any]] = dataclasses.field(default_factory=lambda: ORDERS)
    noise: Callable[[float], Any] = lambda _: sj.samplers.gumbel
    sigma: bool = False
    """Whether its number is the size of noise on the prompt's embeddings."""
    passes: int = 1
    """Of the network, for each step."""
    expand: int = 1
    """Continuations of each sample at each step, of which one is kept; then its number is what
    likeness weighs."""

    def evaluations(self, steps: int) -> int:
        """Of the network, for each sample. The first step has one canvas to read, whatever many
        continuations are drawn from it."""
        return self.passes * (1 + (steps - 1) * self.expand)

    def sampler(self, lm: sj.LanguageModel, length: int, setting: Setting, order: str) -> Sampler:
        """One token a step, all positions open from the beginning."""
        own, heat = setting
        made = sj.masked(
            lm,
            length=length,
            block=length,
            guidance=None if self.guidance is None else self.guidance(own),
            draw=self.draw(own, heat),
            reveal=self.orders[order](),
            noise=self.noise(own),
        )
        return made.replace(denoiser=sj.perturbed(lm, own)) if self.sigma else made


def _grid(own: Sequence[float], heats: Sequence[float]) -> tuple[Setting, ...]:
    return tuple((number, heat) for number in own for heat in heats)


def across(strength: Number) -> sj.Guidance:
    """SAKE between the samples of a prompt."""
    return sj.sake(strength, scope="batch", self_term=0.0)


def across_by(nats: float) -> sj.Guidance:
    """The same, moving each position's distribution by at most so much."""
    return sj.sake(5.0, scope="batch", self_term=0.0, kl_budget=nats)


def even(_: float) -> Any:
    """Samples share out their draws."""
    return sj.systematic()


HOT = 0.15
"""For which part of a run the control is hot."""


def hot_start(hot: float, heat: float) -> sj.Guidance:
    """One temperature for the first moves, and another for the rest."""
    return sj.temperature(sj.piecewise({0.0: hot, HOT: heat}))


HEATS = (0.15, 0.3, 0.5, 1.0)
METHODS: dict[str, SolveMethod] = {
    BASELINE: SolveMethod(_grid([0.0], HEATS)),
    "top-p": SolveMethod(
        _grid([0.8, 0.95], [0.7, 1.2]),
        draw=lambda p, heat: sj.chain(sj.temperature(heat), sj.top_p(p)),
    ),
    "min-p": SolveMethod(
        _grid([0.05, 0.2], [0.7, 1.2]),
        draw=lambda p, heat: sj.chain(sj.temperature(heat), sj.min_p(p)),
    ),
    "hot start": SolveMethod(_grid([2.0, 4.0], [0.15, 0.5]), draw=hot_start),
    "D-CFG": SolveMethod(_grid([0.5, 1.5], [0.3, 0.7]), guidance=sj.classifier_free, passes=2),
    "SAKE, the paper's": SolveMethod(
        _grid([0.5, 2.0], [0.15, 0.5]), guidance=lambda g: sj.paper_sake(g, bandwidth=10.0)
    ),
    "SAKE": SolveMethod(_grid([0.5, 1.0], [0.3, 0.7]), guidance=sj.sake),
    "SAKE across": SolveMethod(_grid([0.1, 0.3], [0.15, 0.5]), guidance=across_by),
    "SAKE both": SolveMethod(
        _grid([0.3, 1.0], [0.15, 0.5]),
        guidance=lambda g: sj.chain(sj.sake(g), across(g)),
    ),
    "SAKE across, early": SolveMethod(
        _grid([0.5, 2.0], [0.15, 0.5]), guidance=lambda g: across(sj.linear(g, 0.0))
    ),
    "ODD": SolveMethod(
        _grid([4.0, 16.0], [0.15, 0.5]), guidance=lambda g: sj.odd(sj.linear(g, 0.0))
    ),
    "DPP": SolveMethod(
        _grid([2.0, 8.0], [0.15, 0.5]), guidance=lambda g: sj.dpp(sj.linear(g, 0.0))
    ),
    "TAPS": SolveMethod(_grid([0.15, 0.35], [0.15, 0.5]), sigma=True),
    "D5P4": SolveMethod(_grid([0.3, 1.0], [0.15, 0.5]), expand=2),
    "even order": SolveMethod(_grid([0.0], HEATS), orders=EVEN),
    "even draws": SolveMethod(_grid([0.0], HEATS), noise=even),
    "even draws and order": SolveMethod(_grid([0.0], HEATS), orders=EVEN, noise=even),
    "crowd": SolveMethod(
        _grid([0.5, 1.0], [0.1, 0.2]), orders=EVEN, noise=lambda c: sj.systematic(crowd=c)
    ),
    "crowd and ODD": SolveMethod(
        _grid([1.0, 3.0], [0.1, 0.2]),
        guidance=lambda g: sj.odd(sj.linear(g, 0.0)),
        orders=EVEN,
        noise=lambda _: sj.systematic(crowd=1.0),
    ),
    "distinct": SolveMethod(_grid([0.5, 1.0], [0.15, 0.3]), guidance=sj.distinct),
    "even, hot start": SolveMethod(
        _grid([2.0, 4.0], [0.15, 0.5]), draw=hot_start, orders=EVEN, noise=even
    ),
    "even, SAKE across": SolveMethod(
        _grid([0.1, 0.3], [0.15, 0.5]), guidance=across_by, orders=EVEN, noise=even
    ),
}
