"""How series are drawn: temperature, filters and forms of SAKE, all of them one program."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import sake_jax as sj
from sake_jax.experiments.series import LENGTH, MASK_ID, SeriesDenoiser
from sake_jax.guidance import guide
from sake_jax.typing import Key, Leaf, Logits, Number, Params, WindowFlags, WindowTokens

ORDERS = ("random", "confidence")
KL_BUDGET = 0.2
"""Of the form that has one, in nats for each position and step."""


def _repulsion(**options: Any) -> Callable[[Number], sj.Guidance]:
    """SAKE without its self term; the closed form is the cheapest way to the same signal."""
    return functools.partial(sj.sake, self_term=0.0, gradient="closed_form", **options)


FORMS: dict[str, Callable[[Number], sj.Guidance]] = {
    "none": lambda strength: sj.identity(),
    "paper-literal": lambda strength: sj.paper_sake(strength, "median"),
    "literal, unit size": functools.partial(sj.sake, gradient="closed_form"),
    "repulsion": _repulsion(),
    "repulsion, expected rows": _repulsion(source="expected"),
    "repulsion, predicted rows": _repulsion(source="predicted"),
    "repulsion, input table": _repulsion(table="input"),
    "exact, predicted rows": functools.partial(sj.sake, source="predicted", gradient="exact"),
    "repulsion across samples": _repulsion(scope="batch"),
    "repulsion in both scopes": _repulsion(scope="both"),
    f"across samples, KL ≤ {KL_BUDGET}": _repulsion(scope="batch", kl_budget=KL_BUDGET),
}


class SeriesSetting(NamedTuple):
    """The numbers of a method."""

    temperature: float
    strength: float = 0.0
    first_temperature: float | None = None
    """Of the first step, if it is another one."""
    mass: float = 1.0
    """Of top-p; 1 keeps every token."""

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """First and later temperature, strength, mass."""
        first = self.temperature if self.first_temperature is None else self.first_temperature
        return first, self.temperature, self.strength, self.mass


class Drawn(NamedTuple):
    """What a setting gives; the last three are means over steps and samples, with strength."""

    tokens: Any
    """(samples, LENGTH)"""
    covariance: Any
    correlation: Any
    rms: Any


class OneForm(sj.Guidance):
    """One of `FORMS`, by its place: one program draws with all of them, and runs only one."""

    form: Leaf
    strength: Leaf

    @property
    def couples_samples(self) -> bool:
        return True  # some of the forms do

    def apply(
        self, logits: Logits, psi: Any, state: Any, ctx: sj.Context
    ) -> tuple[Logits, Any, sj.Signal]:
        zeros = jnp.zeros(logits.shape[0], jnp.float32)
        nothing = sj.Signal(zeros, zeros, zeros, zeros)

        def branch(build: Callable[[Number], sj.Guidance]) -> tuple[Logits, sj.Signal]:
            form = build(self.strength)
            # None of them carries anything from step to step.
            guided = guide(form, form.init(ctx), ctx)
            return guided.logits, guided.reports[0] if guided.reports else nothing

        branches = [functools.partial(branch, form) for form in FORMS.values()]
        guided, signal = jax.lax.switch(self.form, branches)
        return guided, state, signal


class EitherOrder(sj.Node):
    """Positions by confidence, or in random order."""

    by_confidence: Leaf

    def __call__(self, logits: Logits, drawn: WindowTokens, view: sj.View, key: Key) -> WindowFlags:
        surest = sj.reveal.confidence(logits, drawn, view, key)
        return jnp.where(self.by_confidence, surest, sj.reveal.random(logits, drawn, view, key))


def series_sampler(
    denoiser: SeriesDenoiser, form: Array, by_confidence: Array, numbers: Array
) -> sj.Sampler:
    """The sampler of a form's place in `FORMS`, an order, and a setting's four numbers.

    As LLaDA has it, temperature and top-p shape what is drawn, and guidance also the order.
    """
    first, later, strength, mass = numbers
    cooling = sj.temperature(sj.piecewise({0.0: first, 1 / LENGTH: later}))
    return sj.sampler(
        denoiser,
        sj.blocks(LENGTH, LENGTH),
        guidance=OneForm(form, strength),
        draw=sj.chain(cooling, sj.top_p(mass)),
        reveal=EitherOrder(by_confidence),
        record="signal",
    )


def draw(
    denoiser: SeriesDenoiser,
    params: Params,
    form: str,
    order: str,
    settings: Sequence[SeriesSetting],
    key: Key,
    samples: int,
) -> list[Drawn]:
    """Samples of every setting, from the same key.

    Settings take turns, each by the same program: what one gives does not depend on the others.
    """
    numbers = jnp.asarray([setting.numbers for setting in settings], jnp.float32)
    place, by_confidence = jnp.int32(list(FORMS).index(form)), jnp.bool_(order == "confidence")
    outcome = _drawn(denoiser, samples, params, place, by_confidence, numbers, key)
    return [Drawn(*one) for one in zip(*map(np.asarray, outcome), strict=True)]


@functools.partial(jax.jit, static_argnums=1)
def _drawn(
    denoiser: SeriesDenoiser,
    samples: int,
    params: Params,
    form: Array,
    by_confidence: Array,
    numbers: Array,
    key: Key,
) -> Drawn:
    canvas = sj.canvas([[]], LENGTH, mask_id=MASK_ID, samples=samples)

    def one(own: Array) -> Drawn:
        done, info = sj.run(series_sampler(denoiser, form, by_confidence, own), params, key, canvas)
        (signal,) = info.signals
        means = map(jnp.mean, (signal.covariance, signal.correlation, signal.rms))
        return Drawn(done.tokens, *means)

    return jax.lax.map(one, numbers)
