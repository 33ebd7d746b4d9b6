"""Validity against uniqueness of arithmetic series: temperature, controls, and SAKE's forms.

Two small models, with one table for both ends and with two, are trained once and kept. Each method
has six settings; `series_methods` draws, `series_report` writes what was found.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from sake_jax.checks import one_of, require, whole
from sake_jax.experiments import series_report
from sake_jax.experiments.series import Config, Weights, quality
from sake_jax.experiments.series_methods import FORMS, ORDERS, Setting, draw
from sake_jax.experiments.series_training import checksum, load_or_train
from sake_jax.experiments.study import Cell, Found, Study

MODELS = ("tied", "untied")
TEMPERATURES = {
    "random": (0.2, 0.4, 0.6, 0.8, 1.1, 1.5),
    "confidence": (1.0, 1.4, 1.8, 2.2, 2.6, 3.0),
}
MASSES = (0.3, 0.5, 0.7, 0.8, 0.9, 0.97)
HOT = {"random": (1.2, 3.0), "confidence": (3.0, 6.0)}
"""Temperatures of the two-phase control's first step."""
COOL = {"random": (0.2, 0.5, 1.0), "confidence": (1.0, 1.7, 2.4)}
"""Temperatures after it, and those that guidance is combined with."""
STRENGTHS, RAW_STRENGTHS = (0.5, 1.0), (1.0, 10.0)
"""Of signals of unit size, and of the paper's, which has the model's own scale."""
FULL = {"width": 128, "layers": 3, "heads": 4, "steps": 2400, "batch": 128, "samples": 1000}
QUICK = {"width": 32, "layers": 1, "heads": 2, "steps": 50, "batch": 32, "samples": 8}


class Method(NamedTuple):
    """A form of guidance and its settings, by order and by name."""

    form: str
    settings: dict[str, dict[str, Setting]]


def _guided(form: str) -> Method:
    strengths = RAW_STRENGTHS if form == series_report.LITERAL else STRENGTHS
    return Method(
        form,
        {
            order: {f"γ = {g:g}, T = {t:g}": Setting(t, g) for g in strengths for t in COOL[order]}
            for order in ORDERS
        },
    )


def _unguided(settings: Any) -> Method:
    return Method("none", {order: settings(order) for order in ORDERS})


METHODS: dict[str, Method] = {
    "temperature": _unguided(lambda order: {f"T = {t:g}": Setting(t) for t in TEMPERATURES[order]}),
    "top-p": _unguided(lambda order: {f"p = {p:g}": Setting(1.0, mass=p) for p in MASSES}),
    "two phases": _unguided(
        lambda order: {
            f"T = {hot:g} once, then {t:g}": Setting(t, first_temperature=hot)
            for hot in HOT[order]
            for t in COOL[order]
        }
    ),
    **{form: _guided(form) for form in FORMS if form != "none"},
}
"""Every one has six settings in each order."""


def arithmetic(
    folder: str | Path,
    *,
    quick: bool = False,
    seeds: int = 5,
    progress: bool = True,
    models: Sequence[str] = MODELS,
    cache: str | Path | None = None,
) -> Study:
    """Validity and uniqueness of arithmetic series; writes table.md and figures.

    Args:
      folder: for results.jsonl and the report; a stopped run goes on there.
      quick: models that have learned next to nothing, few samples and one seed, to see it work.
      seeds: runs of each setting that are reported; a few others choose the best form.
      progress: whether to show bars.
      models: "tied", with one table for both ends, and "untied", with two.
      cache: where trained models are kept; the user's cache by default.
    """
    require(models, "models must name one or more", models, f"choose from {MODELS}")
    models = [one_of("models", model, MODELS) for model in models]
    seeds = 1 if quick else whole("seeds", seeds)
    sizes = QUICK if quick else FULL
    trained = {model: _trained(model, sizes, cache, progress) for model in models}
    # Another machine may train other weights: a folder holds what one pair of models drew.
    weights = {model: checksum(params) for model, params in trained.items()}
    study = Study(folder, {"experiment": "arithmetic", **sizes, "weights": weights}, progress)
    study.measure(_groups(models, seeds), lambda group: _measured(group, trained, sizes))
    series_report.write(study, models, METHODS, seeds, sizes)
    return study


def _config(sizes: dict[str, int], tied: bool = False) -> Config:
    return Config(width=sizes["width"], layers=sizes["layers"], heads=sizes["heads"], tied=tied)


def _trained(
    model: str, sizes: dict[str, int], cache: str | Path | None, progress: bool
) -> Weights:
    config, budget = _config(sizes, model == "tied"), {n: sizes[n] for n in ("steps", "batch")}
    return load_or_train(config, cache, progress=progress, **budget)


def _groups(models: Sequence[str], seeds: int) -> list[list[Cell]]:
    """Cells that are one call: the settings of a method."""
    return [
        [
            {"model": model, "order": order, "method": name, "setting": setting, "seed": seed}
            for setting in method.settings[order]
        ]
        for part in series_report.parted(seeds)
        for seed in part
        for model in models
        for order in ORDERS
        for name, method in METHODS.items()
    ]


def _measured(group: list[Cell], trained: dict[str, Weights], sizes: dict[str, int]) -> list[Found]:
    """All settings of the method are drawn, also where only some are asked for: a program for
    fewer would be another one."""
    one = group[0]
    form, settings = METHODS[one["method"]].form, METHODS[one["method"]].settings[one["order"]]
    # Tied parameters hold their table twice, so that one program serves both models.
    drawn = draw(
        _config(sizes),
        trained[one["model"]],
        form,
        one["order"],
        list(settings.values()),
        jax.random.key(one["seed"]),
        sizes["samples"],
    )
    found = {}
    for name, (tokens, *signal) in zip(settings, drawn, strict=True):
        found[name] = dict(zip(("validity", "uniqueness"), quality(tokens), strict=True))
        if form != "none":
            means = zip(("covariance", "correlation", "rms"), map(float, signal), strict=True)
            found[name] |= dict(means)
    return [found[cell["setting"]] for cell in group]
