"""The results of arithmetic series as tables, figures and plain statements."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sake_jax import figures
from sake_jax.experiments.frontier import (
    comparable,
    gains,
    hypervolume,
    interval,
    non_dominated,
)
from sake_jax.experiments.series_methods import ORDERS
from sake_jax.experiments.study import Study, marked
from sake_jax.metrics import format_interval
from sake_jax.tables import table

BASELINES = ("temperature", "top-p", "two phases")
AGAINST = ("temperature", "two phases")
"""The baselines that every method is held against."""
LITERAL = "paper-literal"
BESIDE = ("two phases", "top-p", LITERAL, "literal, unit size", "repulsion")
"""What figures show beside temperature and the best form."""
REFERENCE = (0.5, 0.0)
"""Hypervolumes are above this validity and uniqueness: of what fails more often than not, no
diversity is of use."""

CHOOSING = 2
"""Seeds that the best form is chosen by, at most; others are reported."""

Runs = Sequence[float] | np.ndarray
Methods = Mapping[str, Any]
"""Method by name; its `settings` are by order and name."""


def parted(seeds: int) -> tuple[range, range]:
    """Seeds that choose, and as many as are asked for that are reported.

    >>> parted(5)
    (range(0, 2), range(2, 7))
    """
    first = min(CHOOSING, seeds)
    return range(first), range(first, first + seeds)


class ModelRuns:
    """The results of one model and order, by method and seed."""

    def __init__(self, study: Study, methods: Methods, model: str, order: str, seeds: int):
        self.methods, self.model, self.order = methods, model, order
        self.choosing, self.reporting = parted(seeds)
        rows = study.rows(model=model, order=order)
        self.rows = {(row["method"], row["setting"], row["seed"]): row for row in rows}

    def values(self, method: str, name: str, seeds: Sequence[int]) -> np.ndarray:
        """(settings, seeds) one quantity."""
        settings = self.methods[method].settings[self.order]
        each = [[self.rows[method, setting, s][name] for s in seeds] for setting in settings]
        return np.asarray(each)

    def points(self, method: str, seeds: Sequence[int]) -> np.ndarray:
        """(settings, seeds, 2) validity and uniqueness."""
        names = ("validity", "uniqueness")
        return np.stack([self.values(method, name, seeds) for name in names], axis=-1)

    def volumes(self, method: str, seeds: Sequence[int] | None = None) -> list[float]:
        """The hypervolume of each seed, of those that are reported by default."""
        points = self.points(method, self.reporting if seeds is None else seeds)
        return [hypervolume(points[:, at], REFERENCE) for at in range(points.shape[1])]

    def front(self, method: str) -> np.ndarray:
        """(settings, seeds, 2) points of settings that no other beats in the mean, by validity."""
        points = self.points(method, self.reporting)
        points = points[non_dominated(points.mean(axis=1))]
        return points[np.argsort(points[..., 0].mean(axis=1), kind="stable")]

    def gained(self, method: str, baseline: str) -> np.ndarray:
        """(seeds,) uniqueness above a baseline's best settings at equal validity: a mean over the
        settings that no other of the method beats on the seeds that choose, and whose validity
        the baseline reaches with every seed; empty where there are none."""
        chosen = non_dominated(self.points(method, self.choosing).mean(axis=1))
        each = gains(self.points(method, self.reporting)[chosen], self.front(baseline))
        inside = comparable(each)
        return each[inside].mean(axis=0) if inside.any() else np.empty(0)

    def best(self) -> str:
        """The form of SAKE with the largest hypervolume on the seeds that choose."""
        forms = [method for method in self.methods if method not in BASELINES]
        return max(forms, key=lambda form: np.mean(self.volumes(form, self.choosing)))


def write(
    study: Study,
    models: Sequence[str],
    methods: Methods,
    seeds: int,
    sizes: Mapping[str, int],
    quick: bool,
) -> None:
    """Writes table.md, and a figure for each model; a quick run has no verdicts."""
    model_runs = [
        ModelRuns(study, methods, model, order, seeds) for model in models for order in ORDERS
    ]
    for model in models:
        _figure(study, model, [part for part in model_runs if part.model == model], quick)
    forms = len(methods) - len(BASELINES)
    parts = [marked(about(seeds, sizes, forms), quick)]
    parts += [] if quick else [summary(model_runs), gained(model_runs), literal(model_runs)]
    parts += map(_section, model_runs)
    study.write("table.md", "\n\n".join(parts) + "\n")


def about(seeds: int, sizes: Mapping[str, int], forms: int) -> str:
    """How it was measured."""
    choosing, reporting = parted(seeds)
    return (
        f"# Arithmetic series\n\nRuns of {sizes['samples']:,} samples of 8 tokens in 8 steps. "
        "Validity is the share of samples that are series; uniqueness the share of distinct ones "
        f"among these. Models of depth {sizes['layers']} and width {sizes['width']}, trained for "
        f"{sizes['steps']:,} steps; one of each kind, so intervals do not speak of training.\n\n"
        f"Every method has six settings, which were fixed on smaller models. The best of {forms} "
        "forms of SAKE is the one with the largest hypervolume on the seeds that choose, "
        f"{_range(choosing)}; all else is shown on others, {_range(reporting)}. Means and "
        "95 % bootstrap intervals over seeds. Hypervolumes are above validity "
        f"{REFERENCE[0]:g} and uniqueness {REFERENCE[1]:g}: of what fails more often than not, no "
        "diversity is of use.\n\n"
        "Temperature and top-p (at T = 1) shape what is drawn, not the order in which positions "
        "are written; guidance shapes both. “Two phases” is a control without guidance: one hot "
        "step, then cool. σ is the median distance of the rows. Cov[z, ψ] and Corr[z, ψ] are means "
        "over steps and positions, with ψ as it was added, γ included: positive sharpens, negative "
        "flattens (Proposition 1). Figures show a method's settings that no other of its own beats."
    )


def _range(seeds: range) -> str:
    return f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


def summary(model_runs: Sequence[ModelRuns]) -> str:
    """The best form beside the baselines."""
    lines = [["model", "order", "best form of SAKE", "its", *BASELINES, "above"]]
    for part in model_runs:
        best = part.best()
        others = {name: part.volumes(name) for name in BASELINES}
        below = [name for name in BASELINES if compared(part.volumes(best), others[name]) > 0]
        cells = [format_interval(volumes) for volumes in (part.volumes(best), *others.values())]
        lines.append([part.model, part.order, best, *cells, ", ".join(below) or "none"])
    return (
        f"## Hypervolume of the best form\n\n{table(lines)}\n\n"
        "“Above” names the baselines whose interval lies wholly below that of the best form."
    )


def gained(model_runs: Sequence[ModelRuns]) -> str:
    """The best form and the paper's letter against the baselines at equal validity."""
    lines = [["model", "order", "form", *(f"above {name}" for name in BASELINES)]]
    for part in model_runs:
        for form in dict.fromkeys([part.best(), LITERAL]):
            cells = [_gain(part, form, name) for name in BASELINES]
            lines.append([part.model, part.order, form, *cells])
    return (
        f"## Uniqueness at equal validity\n\n{table(lines)}\n\n"
        "Hypervolumes also depend on how far a method's settings reach; this does not. It is the "
        "mean over the settings of a form that no other of its own beats on the seeds that choose, "
        "and whose validity lies between two of the baseline's with every seed; above straight "
        "lines between the baseline's settings that no other of its own beats. Empty where there "
        "are none. Tables below have the other forms."
    )


def _gain(part: ModelRuns, method: str, baseline: str) -> str:
    """Nothing for a baseline itself, and where they cannot be compared."""
    return "" if method == baseline else format_interval(part.gained(method, baseline), "+.3f")


def compared(own: Runs, other: Runs) -> int:
    """1 or -1 where one's interval lies wholly above or below the other's, else 0."""
    (low, high), (other_low, other_high) = interval(own), interval(other)
    return int(low > other_high) - int(high < other_low)


def literal(model_runs: Sequence[ModelRuns]) -> str:
    """What the paper's letter does."""
    return "## What the paper-literal form does\n\n" + "\n".join(map(_literal, model_runs))


def _literal(part: ModelRuns) -> str:
    own, other = part.volumes(LITERAL), part.volumes("temperature")
    gain = {1: "a gain over", -1: "a loss against", 0: "no clear difference from"}
    covariance = part.values(LITERAL, "covariance", part.reporting).mean(axis=0)
    correlation = part.values(LITERAL, "correlation", part.reporting).mean(axis=0)
    effect = {
        1: "positive: it sharpens",
        -1: "negative: it flattens",
        0: "not clearly of one sign",
    }[compared(covariance, [0.0])]
    return (
        f"- {part.model} model, {part.order} order: hypervolume {format_interval(own)}, "
        f"{gain[compared(own, other)]} temperature's {format_interval(other)}; uniqueness at "
        f"equal validity {_gain(part, LITERAL, 'temperature') or 'not comparable'}. Cov[z, ψ] is "
        f"{format_interval(covariance, '+.3f')}, {effect}; Corr[z, ψ] is "
        f"{format_interval(correlation, '+.2f')}."
    )


def _section(part: ModelRuns) -> str:
    lines = [["", "", "validity", "uniqueness", "Cov[z, ψ]", "Corr[z, ψ]"]]
    volumes = [["", "hypervolume", "on the seeds that choose", *(f"above {b}" for b in AGAINST)]]
    for method in part.methods:
        lines += _lines(part, method)
        choosing = part.volumes(method, part.choosing)
        gained = [_gain(part, method, baseline) for baseline in AGAINST]
        volumes.append(
            [method, format_interval(part.volumes(method)), format_interval(choosing), *gained]
        )
    title = f"## {part.model.capitalize()} model, {part.order} order"
    return f"{title}\n\n{table(volumes)}\n\n{table(lines)}"


def _lines(part: ModelRuns, method: str) -> list[list[str]]:
    names = {"validity": ".3f", "uniqueness": ".3f"}
    if method not in BASELINES:
        names |= {"covariance": "+.3f", "correlation": "+.2f"}
    columns = [
        [format_interval(runs, form) for runs in part.values(method, name, part.reporting)]
        for name, form in names.items()
    ]
    columns += [[""] * len(columns[0])] * (4 - len(columns))
    settings = part.methods[method].settings[part.order]
    return [[method, *cells] for cells in zip(settings, *columns, strict=True)]


def _figure(study: Study, model: str, model_runs: Sequence[ModelRuns], quick: bool) -> None:
    """A panel for each order. Of a method only the settings that no other of its own beats: a
    curve through all strengths and temperatures would go back and forth."""
    panels = {}
    for part in model_runs:
        curves = {"temperature": part.front("temperature"), "best SAKE": part.front(part.best())}
        title = f"{model} model, {part.order} order"
        title += "" if quick else f"\nbest SAKE: {part.best()}"
        panels[title] = curves | {method: part.front(method) for method in BESIDE}
    path = study.folder / f"frontier-{model}.png"
    # A quick run's models have learned next to nothing: its points lie on the axes.
    limits = ((-0.03, 1.03), (-0.03, 1.03)) if quick else (None, (0, 1.02))
    words = {"across": "validity", "up": "uniqueness", "limits": limits}
    figures.trade_off(path, panels, **words, quick=quick)
