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
    systematic: bool = False
    sigma: bool = False
    """Whether its number is the size of noise on the prompt's embeddings."""
    evaluations: int = 1
    """Of the network, for each step."""

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
            noise=sj.systematic() if self.systematic else sj.samplers.gumbel,
        )
        return made.replace(denoiser=sj.perturbed(lm, own)) if self.sigma else made


def _grid(own: Sequence[float], heats: Sequence[float]) -> tuple[Setting, ...]:
    return tuple((number, heat) for number in own for heat in heats)


def across(strength: Number) -> sj.Guidance:
    """SAKE between the samples of a prompt."""
    return sj.sake(strength, scope="batch", self_term=0.0)


HEATS = (0.3, 0.6, 1.0, 1.4)
HOT = 0.15
"""For which part of a run the control is hot."""
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
    "hot start": SolveMethod(
        _grid([2.0, 4.0], [0.3, 0.7]),
        draw=lambda hot, heat: sj.temperature(sj.piecewise({0.0: hot, HOT: heat})),
    ),
    "D-CFG": SolveMethod(_grid([0.5, 1.5], [0.6, 1.0]), guidance=sj.classifier_free, evaluations=2),
    "SAKE, the paper's": SolveMethod(
        _grid([0.5, 2.0], [0.2, 0.7]), guidance=lambda g: sj.paper_sake(g, bandwidth=10.0)
    ),
    "SAKE": SolveMethod(_grid([0.5, 1.0], [0.6, 1.0]), guidance=sj.sake),
    "SAKE across": SolveMethod(
        _grid([0.1, 0.3], [0.3, 0.7]),
        guidance=lambda nats: sj.sake(5.0, scope="batch", self_term=0.0, kl_budget=nats),
    ),
    "SAKE both": SolveMethod(
        _grid([0.3, 1.0], [0.3, 0.7]),
        guidance=lambda g: sj.chain(sj.sake(g), across(g)),
    ),
    "SAKE across, early": SolveMethod(
        _grid([0.5, 2.0], [0.3, 0.7]), guidance=lambda g: across(sj.linear(g, 0.0))
    ),
    "ODD": SolveMethod(
        _grid([4.0, 16.0], [0.3, 0.7]), guidance=lambda g: sj.odd(sj.linear(g, 0.0))
    ),
    "DPP": SolveMethod(_grid([2.0, 8.0], [0.3, 0.7]), guidance=lambda g: sj.dpp(sj.linear(g, 0.0))),
    "TAPS": SolveMethod(_grid([0.15, 0.35], [0.3, 0.7]), sigma=True),
    "even order": SolveMethod(_grid([0.0], HEATS), orders=EVEN),
    "even draws": SolveMethod(_grid([0.0], HEATS), systematic=True),
    "even draws and order": SolveMethod(_grid([0.0], HEATS), orders=EVEN, systematic=True),
}
