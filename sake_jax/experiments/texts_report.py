"""The results of texts: tables, frontiers, and a verdict in words."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from sake_jax import figures
from sake_jax.experiments import texts
from sake_jax.experiments.frontier import (
    comparable,
    gains,
    hypervolume,
    interval,
    non_dominated,
)
from sake_jax.experiments.study import Study, marked
from sake_jax.experiments.texts import BASELINE, CONTROL, FIRST, HOT
from sake_jax.metrics import format_interval
from sake_jax.tables import table

Curves = dict[str, np.ndarray]
"""(settings, seeds, 2) -log perplexity and a diversity, of each method."""


def report(
    study: Study,
    title: str,
    about: str,
    labels: dict[str, str],
    seeds: int,
    quick: bool,
    judge: str,
) -> None:
    """Writes table.md and figures; `labels` are what the diversities are called."""
    rows = study.rows()
    there = {key: name for key, name in labels.items() if all(key in row for row in rows)}
    by_panel = {name: curves(study, key, seeds, quick) for key, name in there.items()}
    for file, keys in {"frontier": ("inside", "across"), "meaning": MEANINGS}.items():
        panels = {there[key]: by_panel[there[key]] for key in keys if key in there}
        if panels:
            _figure(study.folder / f"{file}.png", panels, file, quick, judge)
    names = {method: [s.name for s in texts.settings_of(method, quick)] for method in texts.METHODS}
    short = "\n\n".join(verdict(name, each, names) for name, each in by_panel.items())
    parts = [marked(f"# {title}\n\n{about} {_about(seeds, quick)}", quick)]
    parts += [] if quick else [f"## In short\n\n{SHORT}\n\n{short}"]
    parts += [f"## What was measured\n\n{_values(study, there, seeds, quick)}"]
    parts += [f"## Against temperature at equal perplexity\n\n{_gains(by_panel, names)}"]
    parts += [f"## Hypervolume\n\n{_volumes(by_panel)}", f"## Examples\n\n{_examples(study)}"]
    study.write("table.md", "\n\n".join(parts) + "\n")


MEANINGS = ("meaning inside", "meaning")
FEWEST = 5
"""Seeds for a verdict: of fewer, all may fall on one side by chance."""
SHORT = (
    "On each seed, a method has the setting that gains most on the other seeds; the one that is "
    "taken most often is named. A method is not comparable if no setting has perplexities that "
    "the other one has, too, with every seed."
)


def _about(seeds: int, quick: bool) -> str:
    count = len(texts.settings_of(BASELINE, quick))
    return (
        f"{count} settings of each method, {seeds} seeds, the same noise for all of them. "
        "Means and 95 % bootstrap intervals over seeds. Diversity is of words, entropy in nats, of "
        "the words of a sample. A strength is SAKE's γ, and D-CFG's less 1. Corr[z, ψ] above 0 "
        f"sharpens, below 0 flattens. “{CONTROL}” is a control: T = {HOT:g} for {FIRST:.0%} of the "
        "steps, then T."
    )


def curves(study: Study, key: str, seeds: int, quick: bool) -> Curves:
    """-log perplexity and a diversity of each method, setting and seed."""

    def pair(method: str, setting: texts.TextSetting, seed: int) -> tuple[float, float]:
        (row,) = study.rows(method=method, seed=seed, **setting._asdict())
        return -np.log(row["perplexity"]), row[key]

    return {
        method: np.asarray(
            [
                [pair(method, s, seed) for seed in range(seeds)]
                for s in texts.settings_of(method, quick)
            ]
        )
        for method in texts.METHODS
    }


def held_out(gained: np.ndarray) -> tuple[int, np.ndarray] | None:
    """(seeds,) what the setting that gains most on all other seeds gains on each; and the setting
    that is chosen most. Of settings that have the baseline's perplexities with every seed."""
    inside, seeds = comparable(gained), gained.shape[1]
    if seeds < 2 or not inside.any():
        return None
    others = [np.delete(gained, seed, axis=1).mean(axis=1) for seed in range(seeds)]
    best = [int(np.argmax(np.where(inside, means, -np.inf))) for means in others]
    return int(np.bincount(best).argmax()), gained[best, np.arange(seeds)]


def verdict(name: str, by_method: Curves, names: dict[str, list[str]]) -> str:
    """Which methods beat temperature and the control, and who is where on the frontier."""
    against = [
        f"Against “{baseline}”: {_against(by_method, names, baseline)}."
        for baseline in (BASELINE, CONTROL)
    ]
    return f"**{name}** at equal perplexity. {' '.join(against)} {_where(by_method)}"


def _against(by_method: Curves, names: dict[str, list[str]], baseline: str) -> str:
    sides: dict[str, list[str]] = {}
    for method in names:
        if method not in (BASELINE, baseline):
            side, gained = _side(
                held_out(gains(by_method[method], by_method[baseline])), names[method]
            )
            sides.setdefault(side, []).append(f"{method}{gained}")
    return "; ".join(f"{side}: {', '.join(members)}" for side, members in sorted(sides.items()))


def _side(best: tuple[int, np.ndarray] | None, names: list[str]) -> tuple[str, str]:
    if best is None:
        return "not comparable", ""
    at, gained = best
    by = f" (by {format_measure(gained, 'gain')} at {names[at]})"
    low, high = interval(gained)
    if len(gained) < FEWEST:
        return "too few seeds to tell", by
    return ("above" if low > 0 else "below" if high < 0 else "no difference shown"), by


def _where(by_method: Curves) -> str:
    """The methods that no other beats, from low perplexities to high ones."""
    methods = [method for method, own in by_method.items() for _ in own]
    points = np.concatenate([own.mean(axis=1) for own in by_method.values()])
    best, order = non_dominated(points), np.argsort(-points[:, 0], kind="stable")
    runs = []
    for method, run in groupby(order[best[order]], key=lambda at: methods[at]):
        reached = [f"{np.exp(-points[at, 0]):.1f}" for at in run]
        runs.append(f"{method} at {' to '.join(dict.fromkeys([reached[0], reached[-1]]))}")
    return f"Best in the means of all seeds, by rising perplexity: {', '.join(runs)}."


def _values(study: Study, there: dict[str, str], seeds: int, quick: bool) -> str:
    columns = {"perplexity": "perplexity"} | there | {"entropy": "entropy", "words": "words"}
    columns["correlation"] = "Corr[z, ψ]"
    lines = [["", "", *columns.values()]]
    for method in texts.METHODS:
        for setting in texts.settings_of(method, quick):
            rows = study.rows(method=method, **setting._asdict())
            rows = [row for row in rows if row["seed"] < seeds]
            cells = [
                format_measure([row[key] for row in rows if key in row], key) for key in columns
            ]
            lines.append([method, setting.name, *cells])
    return table(lines)


def format_measure(runs: Sequence[float] | np.ndarray, key: str = "") -> str:
    """A mean and its interval, with the digits of what was measured."""
    digits = {"perplexity": ".2f", "words": ".1f", "gain": "+.3f"}
    return format_interval(runs, digits.get(key, ".3f"))


def _gains(by_panel: dict[str, Curves], names: dict[str, list[str]]) -> str:
    lines = [["", "", *by_panel]]
    for method, settings in names.items():
        if method != BASELINE:
            each = [gains(curve[method], curve[BASELINE]) for curve in by_panel.values()]
            lines += [
                [method, setting, *(format_measure(gained[at], "gain") for gained in each)]
                for at, setting in enumerate(settings)
            ]
    about = "By straight lines between temperature's settings, seed by seed; empty where a seed's "
    return f"{about}perplexity is outside of theirs.\n\n{table(lines)}"


def _volumes(by_panel: dict[str, Curves]) -> str:
    base = next(iter(by_panel.values()))[BASELINE][..., 0].mean(axis=1)
    worst = float(base.min())
    lines = [["", *by_panel]]
    for method in texts.METHODS:
        each = [np.moveaxis(curve[method], 1, 0) for curve in by_panel.values()]
        volumes = [[hypervolume(run, (worst, 0.0)) for run in runs] for runs in each]
        lines.append([method, *map(format_measure, volumes)])
    about = "Of -log perplexity above a reference, times diversity; the reference is temperature's "
    return f"{about}highest mean perplexity, {np.exp(-worst):.1f}.\n\n{table(lines)}"


def _examples(study: Study) -> str:
    """The first text of each method's first and last settings."""
    lines = [["", "", "the first text of the first seed"]]
    for method in texts.METHODS:
        for setting in texts.settings_of(method, True):
            (row,) = study.rows(method=method, seed=0, **setting._asdict())
            lines.append([method, setting.name, " ".join(row["example"].replace("|", "/").split())])
    return table(lines)


SHOWN_AS = {CONTROL: f"hot start: T = {HOT:g} at first"}
"""Methods whose names say too little for a legend."""


def _figure(path: Path, panels: dict[str, Curves], file: str, quick: bool, judge: str) -> None:
    """Perplexity against diversity, a line through the temperatures of each strength."""

    def lines(method: str, own: np.ndarray) -> list[np.ndarray]:
        points = np.stack([np.exp(-own[..., 0]), own[..., 1]], axis=-1)
        strengths = np.asarray([setting.strength for setting in texts.settings_of(method, quick)])
        return [points[strengths == strength] for strength in np.unique(strengths)]

    drawn = {
        title: {SHOWN_AS.get(name, name): lines(name, own) for name, own in by_method.items()}
        for title, by_method in panels.items()
    }
    up = "distinct-2" if file == "frontier" else "mean of 1 - cosine"
    across = f"perplexity by {judge}"
    figures.trade_off(path, drawn, across=across, up=up, log=True, quick=quick)
