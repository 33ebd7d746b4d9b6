"""Proposition 1 in action: what guidances do to the entropy, step by step of a generation.

To first order a guidance that adds γψ to the logits z changes the entropy by -γ Cov[z, ψ] under
the base distribution. Then what the paper calls an adaptive modulator: that SAKE flattens where a
sequence is redundant and sharpens where it is diverse, so that Cov[z, ψ] falls as the row sums of
the kernel grow.
"""

import io
from pathlib import Path

import numpy as np

import sake_jax as sj
from sake_jax import figures
from sake_jax.experiments.frontier import interval
from sake_jax.experiments.models import Model
from sake_jax.experiments.samples import Writer
from sake_jax.experiments.study import Cell, Result, Study, marked
from sake_jax.experiments.watching import Watched, agreement, modulation, watched
from sake_jax.metrics import format_interval
from sake_jax.tables import table

STRENGTHS = (0.05, 0.25, 1.0)
"""From small to usual."""
SAKE = {"SAKE": 1.0, "SAKE, repulsion only": 0.0}
"""Its forms, by their self terms."""
METHODS = ("temperature", "D-CFG", *SAKE)
NOT_WHOLE = (
    "An adaptive modulator as the paper has it would sharpen most of the former and flatten most "
    "of the latter."
)
SHOWN, BINS = 300, 10
"""Points of a method in a figure, and groups of them that a line goes through."""
CHANGES = {
    "measured": ("measured", "+.3f"),
    "predicted": ("predicted", "+.3f"),
    "error": ("error", ".3f"),
    "falls": ("entropy falls", ".2f"),
    "same sign": ("same sign", ".2f"),
}
RANKS = {
    "spearman": ("Cov with redundancy", "+.2f"),
    "inside": ("inside a row and step", "+.2f"),
    "scale-free": ("Corr with redundancy", "+.2f"),
    "least": ("Cov, least redundant", "+.3f"),
    "most": ("Cov, most redundant", "+.3f"),
    "least flattened": ("flattened, least redundant", ".2f"),
    "most flattened": ("flattened, most redundant", ".2f"),
}


def entropy(
    folder: str | Path,
    *,
    quick: bool = False,
    seeds: int = 5,
    progress: bool = True,
    model: Model = "tinystories",
    bandwidth: float | str = "median",
    samples: int = 4,
    length: int = 64,
) -> Study:
    """Changes of entropy, measured and predicted; writes table.md and figures.

    Args:
      folder: for results.jsonl and the report; a stopped run goes on there.
      quick: few, short samples and the smallest and greatest strength only.
      seeds: runs of each setting.
      progress: whether to show a bar.
      model: a name, a folder, or a model.
      bandwidth: SAKE's σ, as `sj.sake` takes it.
      samples: of each prompt.
      length: tokens of a sample, one for each step.
    """
    strengths = STRENGTHS[:: len(STRENGTHS) - 1] if quick else STRENGTHS
    if quick:
        samples, length, seeds = min(samples, 2), min(length, 16), min(seeds, 2)
    writer = Writer(model, "none", samples, length, temperature=1.0)
    options = {"experiment": "entropy", **writer.settings, "bandwidth": bandwidth}
    study = Study(folder, options, progress)
    groups = [
        [{"method": method, "strength": strength, "seed": seed}]
        for seed in range(seeds)
        for method in METHODS
        for strength in strengths
    ]
    study.measure(groups, lambda group: [_measured(study, writer, bandwidth, *group)])
    _report(study, options, strengths, seeds, quick)
    return study


def guidance(method: str, strength: float, bandwidth: float | str) -> sj.Guidance:
    """A method whose signal has this strength."""
    if method == "temperature":
        return sj.temperature(1 / (1 + strength))
    if method == "D-CFG":
        return sj.classifier_free(strength)
    return sj.sake(strength, bandwidth=bandwidth, self_term=SAKE[method])


def _measured(study: Study, writer: Writer, bandwidth: float | str, cell: Cell) -> Result:
    method, strength = cell["method"], cell["strength"]
    record = "full" if method in SAKE else "signal"
    seen = Watched(guidance(method, strength, bandwidth))
    watch = watched(writer.write(seen, cell["seed"], record))
    if cell["seed"] == 0:
        steps = np.stack([watch.predicted, watch.measured])
        positions = np.stack([watch.redundancy[watch.open], watch.covariance[watch.open]])
        points = io.BytesIO()
        np.savez(points, steps=steps, positions=positions)
        study.write(_points_file(study, method, strength).name, points.getvalue())
    return agreement(watch) | (modulation(watch) if method in SAKE else {})


def _points_file(study: Study, method: str, strength: float) -> Path:
    return study.folder / f"points-{method}-{strength:g}.npz"


def _report(
    study: Study, options: Cell, strengths: tuple[float, ...], seeds: int, quick: bool
) -> None:
    changes = _lines(study, METHODS, strengths, CHANGES, seeds)
    ranks = _lines(study, tuple(SAKE), strengths, RANKS, seeds)
    parts = [marked(_about(options, seeds), quick), "## The change of entropy", table(changes)]
    parts += ["## Cov[z, ψ] and redundancy", table(ranks)]
    if not quick:
        parts += [_verdict(study, method, strengths[-1], seeds) for method in SAKE]
    study.write("table.md", "\n\n".join(parts) + "\n")
    _predictions(study, strengths, quick)
    _modulations(study, strengths[-1], quick)


def _lines(
    study: Study,
    methods: tuple[str, ...],
    strengths: tuple[float, ...],
    names: dict[str, tuple[str, str]],
    seeds: int,
) -> list[list[str]]:
    lines = [["", "γ", *(label for label, _ in names.values())]]
    for method in methods:
        for strength in strengths:
            runs = {name: _runs(study, method, strength, name, seeds) for name in names}
            cells = [format_interval(runs[name], form) for name, (_, form) in names.items()]
            lines.append([method, f"{strength:g}", *cells])
    return lines


def _runs(study: Study, method: str, strength: float, name: str, seeds: int) -> list[float]:
    cell = {"method": method, "strength": strength}
    return [study.rows(**cell, seed=seed)[0][name] for seed in range(seeds)]


def _about(options: Cell, seeds: int) -> str:
    sigma = options["bandwidth"]
    return (
        f"# Guidance and entropy\n\nModel {Path(options['model']).name}; "
        f"{options['samples']} samples of {options['length']} tokens of each prompt, "
        f"one token a step, drawn from the guided distribution; SAKE's σ: {sigma}. {seeds} seeds, "
        "the same noise for every setting; means and 95 % bootstrap intervals over seeds. "
        "Temperature is 1 / (1 + γ). D-CFG's base is the "
        "conditional branch. Changes of entropy, in nats, are means over a row's open positions "
        "at a step; “predicted” is -γ Cov[z, ψ], “error” the mean distance of the two, as a part "
        "of the mean size of the measured one; “entropy falls” and “same sign” are shares of rows "
        "and steps. Correlations with redundancy are Spearman's, over all open positions of all "
        "steps, or over those of one row and step and then averaged; Corr[z, ψ] does not depend on "
        "the signal's size. “Cov” is the mean γ Cov[z, ψ] and “flattened” the share of positions "
        "where it is below 0, in the quarter of them with the least redundancy and in that with "
        "the most."
    )


def _verdict(study: Study, method: str, strength: float, seeds: int) -> str:
    """The claim in plain words, from the numbers."""
    ends = interval(_runs(study, method, strength, "spearman", seeds))
    trend = "falls" if ends[1] < 0 else "rises" if ends[0] > 0 else "does not surely fall or rise"
    names = ("least", "most", "least flattened", "most flattened")
    least, most, few, many = (
        float(np.mean(_runs(study, method, strength, name, seeds))) for name in names
    )
    whole = ends[1] < 0 and few < 0.5 < many
    return (
        f"{method}, γ = {strength:g}: Cov[z, ψ] {trend} as redundancy grows, from {least:+.2f} in "
        f"the least redundant quarter of the positions, {100 * few:.0f} % of them flattened, to "
        f"{most:+.2f} in the most redundant one, {100 * many:.0f} % flattened. "
        + ("This is the adaptive modulator of the paper: the sign turns." if whole else NOT_WHOLE)
    )


def _some(points: np.ndarray, count: int) -> np.ndarray:
    order = np.random.default_rng(0).permutation(points.shape[1])
    return points[:, order[:count]]


def _predictions(study: Study, strengths: tuple[float, ...], quick: bool) -> Path:
    """Measured against predicted changes: a panel for each strength, a mark for each method."""
    figure, (axes,) = figures.panels(1, len(strengths), (4.4 * len(strengths), 4.2))
    for place, strength in zip(axes, strengths, strict=True):
        for at, method in enumerate(METHODS):
            points = _some(np.load(_points_file(study, method, strength))["steps"], SHOWN // 2)
            style = {"marker": figures.STYLES[at][0], "edgecolors": figures.COLOURS[at]}
            place.scatter(*points, s=14, facecolors="none", linewidths=0.7, label=method, **style)
        place.axline((0, 0), slope=1, color="black", linewidth=0.8, label="equal")
        place.set(title=f"γ = {strength:g}", xlabel="predicted, -γ Cov[z, ψ], nats")
        place.grid(alpha=0.3)
    axes[0].set_ylabel("measured change of entropy, nats")
    figures.legend(figure, len(METHODS) + 1)
    return figures.save(figure, study.folder / "prediction.png", quick)


def _modulations(study: Study, strength: float, quick: bool) -> Path:
    """Covariance against redundancy, position by position, with means of equal groups."""
    figure, (axes,) = figures.panels(1, len(SAKE), (5.0 * len(SAKE), 4.2))
    for place, method in zip(axes, SAKE, strict=True):
        points = np.load(_points_file(study, method, strength))["positions"]
        place.scatter(*_some(points, 5 * SHOWN), s=5, color="0.6", linewidths=0)
        order = np.argsort(points[0])
        groups = [points[:, part].mean(axis=1) for part in np.array_split(order, BINS)]
        place.plot(*np.asarray(groups).T, "o-", color="black", label="means of tenths")
        place.axhline(0, color="black", linewidth=0.8, linestyle="--")
        place.set(title=f"{method}, γ = {strength:g}", xlabel="redundancy, Σ_j W_ij")
    axes[0].set_ylabel("γ Cov[z, ψ]: below 0 it flattens")
    figures.legend(figure)
    return figures.save(figure, study.folder / "modulation.png", quick)
