"""How much SAKE's two bandwidths matter: the paper's tables over σ and σ_attn.

σ as a number, σ as a multiple of the rows' median distance at each step, and σ_attn with the
vanishing-distance heuristic among its values; each sweep leaves the other bandwidth at its
heuristic. The sampler is that of the model's family.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sake_jax import figures
from sake_jax.experiments.bandwidths import SYMBOLS, guidance, sweeps, unguided
from sake_jax.experiments.frontier import interval
from sake_jax.experiments.models import Model
from sake_jax.experiments.samples import MEASURES, Writer, busy
from sake_jax.experiments.study import Cell, Result, Study, marked
from sake_jax.metrics import format_interval
from sake_jax.tables import table

SHOWN = {"perplexity": ("perplexity",), "distinct-2": ("within", "across")}
"""The figure's rows."""
RULE = "the value by the rule of thumb"
"""σ is the rows' median distance, and σ_attn vanishes at the other end of a sample."""
CLOSE = 10
"""How many per cent above the lowest perplexity are close to it."""
Runs = Callable[[Cell, str], np.ndarray]
"""A setting's values of a measure, one for each seed."""


def sensitivity(
    folder: str | Path,
    *,
    quick: bool = False,
    seeds: int = 5,
    progress: bool = True,
    model: Model = "tinystories",
    judge: str | Path = "auto",
    strength: float = 1.0,
    normalize: str = "rms",
    temperature: float = 0.7,
    samples: int = 8,
    length: int = 64,
) -> Study:
    """Sweeps of SAKE's two bandwidths; writes table.md and a figure.

    Args:
      folder: for results.jsonl and the report; a stopped run goes on there.
      quick: few, short samples of few values, to see it work.
      seeds: runs of each setting.
      progress: whether to show a bar.
      model: a name, a folder, or a model. Without a tokenizer, tokens are counted in place of
        words and there is no judge.
      judge: a causal model, "none", or "auto": the built-in model's twin, else SmolLM2.
      strength: γ. It has the model's own scale with normalize="none".
      normalize: "rms", or "none" as in the paper, where a greater σ is a weaker signal too.
      temperature: of the draw.
      samples: of each prompt.
      length: tokens of a sample, one for each step.
    """
    if quick:
        samples, length, seeds = min(samples, 2), min(length, 16), min(seeds, 2)
    writer = Writer(model, str(judge), samples, length, temperature)
    options = {"experiment": "sensitivity", **writer.settings}
    options |= {"strength": strength, "normalize": normalize}
    study = Study(folder, options, progress)
    settings = sweeps(length, strength, quick)
    cells = _groups([unguided(length)], *settings.values(), seeds=seeds)
    study.measure(cells, lambda group: [_measured(writer, normalize, *group)])
    _report(study, options, settings, seeds, quick)
    return study


def _groups(*settings: list[Cell], seeds: int) -> list[list[Cell]]:
    """One cell each; the heuristics' setting is in two sweeps and measured once."""
    each = [setting for sweep in settings for setting in sweep]
    once = [setting for at, setting in enumerate(each) if setting not in each[:at]]
    return [[setting | {"seed": seed}] for seed in range(seeds) for setting in once]


def _measured(writer: Writer, normalize: str, cell: Cell) -> Result:
    out = writer.write(guidance(cell, normalize), cell["seed"])
    assert out.info is not None, "nothing was read from an earlier run"
    (middle, signal), at = out.info.signals, busy(out.info)
    measures = writer.measures(out) | {"median": float(np.mean(middle.median[at]))}
    names = ("correlation", "redundancy", "rms") if cell["strength"] else ("redundancy",)
    return measures | {name: float(np.mean(getattr(signal, name)[at])) for name in names}


def _report(
    study: Study, options: Cell, settings: dict[str, list[Cell]], seeds: int, quick: bool
) -> None:
    def runs(setting: Cell, name: str) -> np.ndarray:
        """(seeds,) what was measured of a setting; empty where it was not."""
        rows = [study.rows(**setting, seed=seed)[0] for seed in range(seeds)]
        return np.asarray([row[name] for row in rows if name in row], float)

    base = unguided(options["length"])
    names = [name for name in MEASURES if runs(settings["attention"][0], name).size]
    parts = [marked(_about(options, seeds, runs(base, "median")), quick)]
    for swept, sweep in settings.items():
        lines = [[SYMBOLS[swept], *(MEASURES[name][0] for name in names)]]
        for setting in (base, *sweep):
            values = {name: runs(setting, name) for name in names}
            cells = [format_interval(v, MEASURES[n][1]) for n, v in values.items()]
            lines.append([_label(swept, setting, base), *cells])
        parts += [f"## {SYMBOLS[swept]}", table(lines)]
        if "perplexity" in names and seeds > 1 and not quick:
            parts.append(_reading(runs, swept, sweep, seeds // 2))
    study.write("table.md", "\n\n".join(parts) + "\n")
    rows = [row for row in SHOWN if set(SHOWN[row]) <= set(names)]
    judge = Path(options["judge"]).name
    _figure(study.folder / "sensitivity.png", runs, settings, rows, base, judge, quick)


def _about(options: Cell, seeds: int, middle: np.ndarray) -> str:
    return (
        f"# Sensitivity to the bandwidths\n\nModel {Path(options['model']).name}, judge "
        f"{Path(options['judge']).name}; {options['samples']} samples of "
        f"{options['length']} tokens of each prompt, one token a step, drawn at T = "
        f"{options['temperature']:g}; "
        f"sake({options['strength']:g}, normalize={options['normalize']!r}). {seeds} seeds, "
        "the same noise for every setting; "
        "means and 95 % bootstrap intervals over seeds. Entropy is of a sample's own words, in "
        "nats; Corr[z, ψ], redundancy and the signal's RMS are means over steps. Unguided, the "
        f"rows' median distance is {format_interval(middle, '.1f')}, a mean over steps. While σ is "
        "swept, σ_attn is at its heuristic; while σ_attn is swept, σ is the median. A low "
        "perplexity may be collapse, and few words repeat little: read distinct-2 beside both. "
        "(Words are tokens where a model has no tokenizer.)"
    )


def _label(swept: str, setting: Cell, base: Cell) -> str:
    if setting == base:
        return "unguided"
    by_heuristic = swept != "bandwidth" and setting[swept] == base[swept]
    return f"{setting[swept]:g}" + (", the heuristic" if by_heuristic else "")


def _reading(runs: Runs, swept: str, sweep: list[Cell], half: int) -> str:
    """Which values are close to the best one, which some seeds choose and the others measure."""
    values = [setting[swept] for setting in sweep]
    judged = np.stack([runs(setting, "perplexity") for setting in sweep])
    best = int(np.argmin(judged[:, :half].mean(axis=1)))
    others = judged[:, half:].mean(axis=1)
    limit = others[best] * (1 + CLOSE / 100)
    close = [f"{v:g}" for v, each in zip(values, others, strict=True) if each <= limit]
    return (
        f"Lowest perplexity, chosen by {half} of the seeds: at {SYMBOLS[swept]} = "
        f"{values[best]:g}. By the others it is {format_interval(judged[best, half:], '.1f')} "
        f"there, and at most {CLOSE} % more at {', '.join(close)}."
    )


def _figure(
    path: Path,
    runs: Runs,
    settings: dict[str, list[Cell]],
    rows: list[str],
    base: Cell,
    judge: str,
    quick: bool,
) -> Path:
    """A row for each quality, a column for each sweep; unguided as a line with its interval."""
    size = (3.8 * len(settings), 3.2 * len(rows) + 0.3)
    figure, axes = figures.panels(len(rows), len(settings), size, sharey="row")
    for row, quality in zip(axes, rows, strict=True):
        for place, (swept, sweep) in zip(row, settings.items(), strict=True):
            across = [setting[swept] for setting in sweep]
            for at, name in enumerate(SHOWN[quality]):
                values = [runs(setting, name) for setting in sweep]
                _curve(place, across, values, MEASURES[name][0], at)
                _level(place, runs(base, name), f"{MEASURES[name][0]}, unguided", at)
            if swept != "bandwidth":
                place.axvline(base[swept], color="0.8", linewidth=3, zorder=0, label=RULE)
            place.set(xscale="log", xlabel=SYMBOLS[swept])
            place.set_xticks(across, [f"{value:g}" for value in across], fontsize=8)
            place.set_xticks([], minor=True)
            place.grid(axis="y", alpha=0.3)
        judged = f"perplexity by {judge}" if quality == "perplexity" else quality
        row[0].set_ylabel(judged)
    figures.legend(figure, 3)
    return figures.save(figure, path, quick)


def _curve(axes: Any, across: list[float], runs: list[np.ndarray], name: str, at: int) -> None:
    means = np.asarray([values.mean() for values in runs])
    bars = np.abs(np.asarray([interval(values) for values in runs]).T - means[None])
    marker, line = figures.STYLES[at]
    style = {"marker": marker, "linestyle": line, "color": figures.COLOURS[at], "markersize": 4}
    axes.errorbar(across, means, yerr=bars, label=name, elinewidth=0.8, **style)


def _level(axes: Any, runs: np.ndarray, name: str, at: int) -> None:
    """What there is without guidance."""
    style = {"color": figures.COLOURS[at], "linewidth": 1.2, "linestyle": (0, (1, 2 + 3 * at))}
    axes.axhline(runs.mean(), label=name, **style)
    axes.axhspan(*interval(runs), color=figures.COLOURS[at], alpha=0.12, linewidth=0)
