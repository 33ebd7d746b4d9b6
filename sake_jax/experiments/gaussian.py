"""Coverage against density on mixtures of Gaussians: the paper's Figures 1, 2 (top left) and 5.

SAKE and temperature, each over the whole run and for its first 80 % only, by as many settings
each; `lattice` has the walk itself.
"""

import io
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sake_jax as sj
from sake_jax import figures
from sake_jax.experiments.frontier import gains, hypervolume
from sake_jax.experiments.lattice import MIXTURES, WalkSetting, target, walk
from sake_jax.experiments.study import Cell, Result, Study, marked
from sake_jax.metrics import format_interval
from sake_jax.tables import table

TEMPERATURES = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
STRENGTHS = (0.01, 0.1, 0.2, 0.5, 1.0, 2.0)
SHOWN = {"temperature": (1.0, 5.0, 10.0, 20.0), "SAKE": (0.1, 0.2, 0.5, 1.0)}
"""What the paper's scatter figures show."""
METHODS = {
    "temperature": {t: WalkSetting(t) for t in TEMPERATURES},
    "SAKE": {g: WalkSetting(strength=g) for g in STRENGTHS},
    "temperature, 1 at last": {t: WalkSetting(t, late_temperature=1.0) for t in TEMPERATURES},
    "SAKE, off at last": {g: WalkSetting(strength=g, late_strength=0.0) for g in STRENGTHS},
}
AGAINST = {"SAKE": "temperature", "SAKE, off at last": "temperature, 1 at last"}
"""What a method is held against."""
SYMBOLS = {name: "γ" if "SAKE" in name else "T" for name in METHODS}
TITLES = {"ring8": "eight modes on a ring", "grid9": "nine modes on a grid"}
"""What the mixtures are called."""
MATTERS = 0.1
"""Strengths from here on are held against temperature at equal density."""


def gaussian(
    folder: str | Path, *, quick: bool = False, seeds: int = 5, progress: bool = True
) -> Study:
    """Walks of particles on mixtures of Gaussians; writes table.md and figures.

    Args:
      folder: for results.jsonl and the report; a stopped run goes on there.
      quick: fewer particles, steps and seeds, to see it work.
      seeds: runs of each setting.
      progress: whether to show a bar.
    """
    sizes = {"particles": 300, "steps": 60} if quick else {"particles": 2000, "steps": 500}
    seeds = min(seeds, 2) if quick else seeds
    study = Study(folder, {"experiment": "gaussian", **sizes}, progress)
    study.measure(_groups(seeds), lambda group: _measured(study, group, sizes))
    _report(study, seeds, sizes, quick)
    return study


def _groups(seeds: int) -> list[list[Cell]]:
    """Cells that are one program: a mixture and a seed, with or without the kernel."""
    return [
        [
            {"mixture": mixture, "method": method, "value": value, "seed": seed}
            for method in methods
            for value in METHODS[method]
        ]
        for seed in range(seeds)
        for mixture in MIXTURES
        for methods in (list(METHODS)[0::2], list(METHODS)[1::2])
    ]


def _measured(study: Study, group: list[Cell], sizes: dict[str, int]) -> list[Result]:
    mixture, seed = group[0]["mixture"], group[0]["seed"]
    settings = [METHODS[cell["method"]][cell["value"]] for cell in group]
    real = target(mixture, sizes["particles"], np.random.default_rng(seed))
    own = jax.random.fold_in(jax.random.key(seed), MIXTURES.index(mixture))
    keys = jax.vmap(lambda at: jax.random.fold_in(own, at))(np.asarray(_places(group)))
    measures = []
    for cell, points in zip(group, walk(mixture, settings, keys, **sizes), strict=True):
        if seed == 0 and cell["value"] in SHOWN.get(cell["method"], ()):
            shown = io.BytesIO()
            np.save(shown, points)
            path = _points_file(study, cell["mixture"], cell["method"], cell["value"])
            study.write(path.name, shown.getvalue())
        measures.append(sj.metrics.coverage(real, points)._asdict())
    return measures


def _places(group: list[Cell]) -> list[int]:
    """A number for each cell of a mixture, whatever group it is in."""
    order = [(method, value) for method, values in METHODS.items() for value in values]
    return [order.index((cell["method"], cell["value"])) for cell in group]


def _points_file(study: Study, mixture: str, method: str, value: float) -> Path:
    return study.folder / f"points-{mixture}-{method}-{value:g}.npy"


def curves(study: Study, mixture: str, seeds: int) -> dict[str, np.ndarray]:
    """(settings, seeds, 2) density and coverage of each method."""

    def pair(method: str, value: float, seed: int) -> tuple[float, float]:
        (row,) = study.rows(mixture=mixture, method=method, value=value, seed=seed)
        return row["density"], row["coverage"]

    return {
        method: np.asarray([[pair(method, v, seed) for seed in range(seeds)] for v in values])
        for method, values in METHODS.items()
    }


def _report(study: Study, seeds: int, sizes: dict[str, int], quick: bool) -> None:
    by_mixture = {mixture: curves(study, mixture, seeds) for mixture in MIXTURES}
    limits = ((0, 1.15), (0, 1.02))
    path = study.folder / "frontier.png"
    titled = {TITLES[mixture]: by_method for mixture, by_method in by_mixture.items()}
    words = {"across": "density", "up": "coverage", "limits": limits}
    figures.trade_off(path, titled, **words, quick=quick)
    for mixture in MIXTURES:
        _scatter(study, mixture, sizes["particles"], quick)
    parts = [
        marked(_about(seeds, sizes), quick),
        *(_section(mixture, by_mixture[mixture]) for mixture in MIXTURES),
    ]
    study.write("table.md", "\n\n".join(parts) + "\n")


def _about(seeds: int, sizes: dict[str, int]) -> str:
    return (
        f"# Mixtures of Gaussians\n\n{sizes['particles']:,} particles from one mode, "
        f"{sizes['steps']} steps, {seeds} seeds. Means and 95 % bootstrap intervals over seeds. "
        "“Gain” is coverage above temperature's at equal density, by straight lines between its "
        "settings; where guidance is off at last, above temperatures that are 1 at last. Those "
        "have nearly one density, so that lines between them mean little: see the hypervolumes."
    )


def _section(mixture: str, by_method: dict[str, np.ndarray]) -> str:
    lines = [["", "", "density", "coverage", "gain"]]
    for method, values in METHODS.items():
        base = AGAINST.get(method)
        gained = gains(by_method[method], by_method[base], beyond=True) if base else None
        for at, value in enumerate(values):
            density, covered = by_method[method][at].T
            gain = "" if gained is None or value < MATTERS else format_interval(gained[at], "+.3f")
            setting = f"{SYMBOLS[method]} = {value:g}"
            lines.append(
                [method, setting, format_interval(density), format_interval(covered), gain]
            )
    volumes = [["", "hypervolume"]]
    for method, values in by_method.items():
        each = [hypervolume(values[:, seed]) for seed in range(values.shape[1])]
        volumes.append([method, format_interval(each)])
    return f"## {TITLES[mixture]}\n\n{table(lines)}\n\n{table(volumes)}"


def _scatter(study: Study, mixture: str, particles: int, quick: bool) -> Path:
    """The paper's figure: temperatures above, strengths below, the target beside."""
    columns = len(SHOWN["SAKE"]) + 1
    size = (2.1 * columns, 4.4)
    figure, axes = figures.panels(2, columns, size, sharex=True, sharey=True)
    real = target(mixture, particles, np.random.default_rng(0))
    for row, (method, values) in zip(axes, SHOWN.items(), strict=True):
        for place, value in zip(row, values, strict=False):
            points = np.load(_points_file(study, mixture, method, value))
            density, covered = sj.metrics.coverage(real, points)
            title = f"{SYMBOLS[method]} = {value:g}\n{density:.2f}, {covered:.2f}"
            _cloud(place, points, title)
        _cloud(row[-1], real, "target")
        row[0].set_ylabel(method)
    note = " (a quick run)" if quick else ""
    figure.suptitle(f"{TITLES[mixture]}: density, coverage{note}", fontsize=10)
    return figures.save(figure, study.folder / f"scatter-{mixture}.png")


def _cloud(axes: Any, points: np.ndarray, title: str) -> None:
    axes.scatter(*points.T, s=1.5, color="black", alpha=0.35, linewidths=0)
    axes.set_title(title, fontsize=9)
    axes.set(xlim=(-12, 12), ylim=(-12, 12), xticks=[], yticks=[], aspect="equal")
