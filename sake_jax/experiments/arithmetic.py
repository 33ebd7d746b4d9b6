"""Validity against uniqueness of arithmetic series: temperature, controls, and SAKE's forms.

Two small models, with one table for both ends and with two, are trained once and kept. Each method
has six settings; `series_methods` draws, `series_report` writes the results.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from sake_jax.checks import one_of, require, whole
from sake_jax.experiments import series_report
from sake_jax.experiments.series import (
    TRAINING,
    checksum,
    load_or_train,
    make_denoiser,
    make_recipe,
    quality,
)
from sake_jax.experiments.series_methods import FORMS, ORDERS, SeriesSetting, draw
from sake_jax.experiments.study import Cell, Result, Study
from sake_jax.training import Recipe
from sake_jax.typing import Params

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
FULL = {"width": 128, "layers": 3, "heads": 4, "samples": 1000}
FULL |= {"steps": TRAINING.steps, "batch": TRAINING.batch}
QUICK = {"width": 32, "layers": 1, "heads": 2, "steps": 50, "batch": 32, "samples": 8}


class Method(NamedTuple):
    """A form of guidance and its settings, by order and by name."""

    form: str
    settings: dict[str, dict[str, SeriesSetting]]


def _guided(form: str) -> Method:
    strengths = RAW_STRENGTHS if form == series_report.LITERAL else STRENGTHS
    return Method(
        form,
        {
            order: {
                f"γ = {g:g}, T = {t:g}": SeriesSetting(t, g) for g in strengths for t in COOL[order]
            }
            for order in ORDERS
        },
    )


def _unguided(settings: Any) -> Method:
    return Method("none", {order: settings(order) for order in ORDERS})


METHODS: dict[str, Method] = {
    "temperature": _unguided(
        lambda order: {f"T = {t:g}": SeriesSetting(t) for t in TEMPERATURES[order]}
    ),
    "top-p": _unguided(lambda order: {f"p = {p:g}": SeriesSetting(1.0, mass=p) for p in MASSES}),
    "two phases": _unguided(
        lambda order: {
            f"T = {hot:g} once, then {t:g}": SeriesSetting(t, first_temperature=hot)
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
    recipes = {model: _recipe(sizes, tied=model == "tied") for model in models}
    trained = {m: load_or_train(recipe, cache, progress) for m, recipe in recipes.items()}
    # Another machine may train other weights: a folder holds what one pair of models drew.
    weights = {model: checksum(params) for model, params in trained.items()}
    study = Study(folder, {"experiment": "arithmetic", **sizes, "weights": weights}, progress)
    study.measure(_groups(models, seeds), lambda group: _measured(group, trained, sizes))
    series_report.write(study, models, METHODS, seeds, sizes, quick)
    return study


def _recipe(sizes: dict[str, int], tied: bool) -> Recipe:
    shape = {name: sizes[name] for name in ("width", "layers", "heads")}
    budget = {name: sizes[name] for name in ("steps", "batch")}
    return make_recipe(**shape, tied=tied, training=dataclasses.replace(TRAINING, **budget))


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


def _measured(group: list[Cell], trained: dict[str, Params], sizes: dict[str, int]) -> list[Result]:
    """All settings of the method are drawn, also where only some are asked for: a program for
    fewer would be another one."""
    one = group[0]
    form, settings = METHODS[one["method"]].form, METHODS[one["method"]].settings[one["order"]]
    drawn = draw(
        make_denoiser(_recipe(sizes, tied=False)),
        trained[one["model"]],
        form,
        one["order"],
        list(settings.values()),
        jax.random.key(one["seed"]),
        sizes["samples"],
    )
    results = {}
    for name, (tokens, *signal) in zip(settings, drawn, strict=True):
        results[name] = dict(zip(("validity", "uniqueness"), quality(tokens), strict=True))
        if form != "none":
            means = zip(("covariance", "correlation", "rms"), map(float, signal), strict=True)
            results[name] |= dict(means)
    return [results[cell["setting"]] for cell in group]
