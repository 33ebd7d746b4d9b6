"""Which setting a method is reported with, and what is reported."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import sake_jax as sj
from sake_jax import figures
from sake_jax.experiments.solve_methods import BASELINE
from sake_jax.experiments.study import Cell, Study
from sake_jax.metrics import Estimate, format_interval, pass_at_k
from sake_jax.tables import table

KS = (1, 2, 4, 8, 16, 32)
RIVALS = ("ODD", "SAKE, the paper's")
"""What the best is compared with, beside the temperature."""
POINT = 0.01
"""By how much pass@1 may be lower than the chosen temperature's."""


def choose(study: Study, about: Cell, method: str) -> Cell:
    """The setting of a method that is best on development problems, for the aim of `about`.

    To vote: whose votes are right most often. To solve: the highest pass@k of all samples, among
    settings whose pass@1 is not more than a point below that of the temperature chosen by the same
    rule; the highest pass@1 if none is.
    """
    rows = study.rows(**about, method=method, split="development")
    if about["aim"] == "vote":
        best = max(rows, key=_voted)
    elif method == BASELINE:
        best = max(rows, key=_solved)
    else:
        hottest = max(study.rows(**about, method=BASELINE, split="development"), key=_solved)
        fair = [row for row in rows if _once(row) >= _once(hottest) - POINT]
        best = max(fair, key=_solved) if fair else max(rows, key=_once)
    return {name: best[name] for name in ("method", "order", "setting")}


def _once(row: dict[str, Any]) -> float:
    """pass@1, as a sum: all rows have as many samples."""
    return float(np.sum(row["right"])) / row["samples"] / np.size(row["right"])


def _solved(row: dict[str, Any]) -> tuple[float, float]:
    """The share of groups with a right answer; of equals, pass@1."""
    return float(np.mean(np.asarray(row["right"]) > 0)), _once(row)


def _voted(row: dict[str, Any]) -> tuple[float, float]:
    """The share of votes that are right; of equals, pass@1."""
    return float(np.mean(row["vote"])), _once(row)


class Reported:
    """What a method's chosen setting did on the test problems."""

    def __init__(self, study: Study, about: Cell, method: str):
        self.rows = study.rows(**about, **choose(study, about, method), split="test")
        self.samples = about["samples"]
        own, heat = self.rows[0]["setting"]
        number = f"{own:g}, " if own else ""
        self.name = f"{number}T = {heat:g}, {self.rows[0]['order']}"
        self.evaluations = self.rows[0]["evaluations"]

    def passes(self, k: int) -> np.ndarray:
        """(problems,) pass@k, over groups and seeds."""
        return pass_at_k(self.samples, self.values("right"), k).mean(axis=0)

    def means(self, name: str) -> np.ndarray:
        """(problems,) the mean of another quantity."""
        return self.values(name).mean(axis=0)

    def values(self, name: str) -> np.ndarray:
        """(groups of all seeds, problems)."""
        return np.concatenate([np.asarray(row[name]) for row in self.rows])


def report(study: Study, runs: Sequence[Cell], methods: Sequence[str], quick: bool) -> None:
    """Writes table.md, and two figures for each task."""
    parts = []
    for about in runs:
        tested = {method: Reported(study, about, method) for method in methods}
        if about["aim"] == "vote":
            parts.append(_votes(tested))
            continue
        ks = tuple(k for k in KS if k <= about["samples"])
        verdict = [] if quick else [_verdict(study, about, tested, ks[-1])]
        parts += [f"## {about['task']}", _passes(tested, ks), *verdict]
        _curves(study, about["task"], tested, ks, quick)
        _against(study, about["task"], tested, ks[-1], quick)
    introduction = _introduction(Reported(study, runs[0], BASELINE), quick)
    study.write("table.md", "\n\n".join([introduction, *parts]) + "\n")


def _introduction(tested: Reported, quick: bool) -> str:
    groups, problems = tested.values("right").shape
    seeds, samples = len(tested.rows), tested.samples
    words = "A quick run: it shows that all works, and claims nothing. " if quick else ""
    return (
        f"# Solve more\n\n{words}{problems} test problems, {groups} groups of {samples} samples "
        f"for each ({seeds} {'seed' if seeds == 1 else 'seeds'}), one token a step. Samples of a "
        "group are drawn together; smaller k are of parts of it. A method's setting is the one "
        f"with the highest pass@{samples} on development problems among those whose pass@1 is at "
        "most a point below that of the temperature chosen in the same way; for votes, which are "
        "of five samples drawn together, the one that votes best. Every method has as many "
        "settings, in three orders of writing. Differences are paired by problem; 95 % bootstrap "
        "intervals over problems. An evaluation is one pass of the network for one sample."
    )


def _verdict(study: Study, about: Cell, runs: dict[str, Reported], most: int) -> str:
    """What the method that development problems would choose did on the test problems."""

    def promise(method: str) -> tuple[float, float]:
        row = {**about, **choose(study, about, method), "split": "development"}
        return _solved(study.rows(**row)[0])

    best = max((method for method in runs if method != BASELINE), key=promise)
    others = [name for name in (BASELINE, *RIVALS) if name in runs and name != best]
    lines = [[f"{best} against", "pass@1", f"pass@{most}"]]
    lines += [[n, *(_gained(runs[best], runs[n], k) for k in (1, most))] for n in others]
    return f"Development problems choose {best!r}.\n\n{table(lines)}"


def _passes(runs: dict[str, Reported], ks: Sequence[int]) -> str:
    base, most = runs[BASELINE], ks[-1]
    head = ["method", "setting", *(f"pass@{k}" for k in ks), f"vote@{most}", "different"]
    lines = [[*head, "evaluations", "pass@1 gained", f"pass@{most} gained"]]
    for method, run in runs.items():
        rates = [f"{run.passes(k).mean():.3f}" for k in ks]
        rates += [f"{run.means('vote').mean():.3f}", f"{run.means('different').mean():.2f}"]
        line = [method, run.name, *rates]
        gained = ["", ""] if run is base else [_gained(run, base, k) for k in (1, most)]
        lines.append([*line, str(run.evaluations), *gained])
    return table(lines)


def _gained(run: Reported, base: Reported, k: int) -> str:
    return _shown(difference(run.passes(k), base.passes(k)))


def _shown(gain: Estimate) -> str:
    return format_interval(gain, "+.3f")


def difference(own: np.ndarray, base: np.ndarray) -> Estimate:
    """The mean difference over problems, with its bootstrap interval: paired."""
    return sj.metrics.estimate(own - base)


def _votes(runs: dict[str, Reported]) -> str:
    base = runs[BASELINE]
    name = f"vote@{base.samples}"
    lines = [["method", "setting", "pass@1", name, f"{name} gained"]]
    for method, run in runs.items():
        votes = run.means("vote")
        rates = [f"{values.mean():.3f}" for values in (run.passes(1), votes)]
        gained = "" if run is base else _shown(difference(votes, base.means("vote")))
        lines.append([method, run.name, *rates, gained])
    return f"Votes of {base.samples}:\n\n{table(lines)}"


def _curves(
    study: Study, task: str, runs: dict[str, Reported], ks: Sequence[int], quick: bool
) -> None:
    """pass@k against k, of the temperature and the three that solve most."""
    most = sorted(runs, key=lambda name: -float(runs[name].passes(ks[-1]).mean()))
    shown = [BASELINE, *(name for name in most if name != BASELINE)][:4]
    figure, ((axes,),) = figures.panels(1, 1, (5.6, 4.2))
    for at, name in enumerate(shown):
        marker, line = figures.STYLES[at]
        rates = [float(runs[name].passes(k).mean()) for k in ks]
        axes.plot(ks, rates, line, marker=marker, color=figures.COLOURS[at], label=name)
    axes.set(
        xscale="log", xlabel="k, samples of a problem", ylabel="pass@k", title=_title(task, quick)
    )
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.minorticks_off()
    figures.share_axis(axes, max(float(runs[name].passes(ks[-1]).mean()) for name in shown))
    figures.legend(figure, 2)
    figures.save(figure, study.folder / f"{task}-curves.png")


def _against(study: Study, task: str, runs: dict[str, Reported], most: int, quick: bool) -> None:
    """pass@k of all samples, and different right answers, against pass@1; every method a point."""
    figure, ((solved, different),) = figures.panels(1, 2, (10.4, 4.6))
    for at, (name, run) in enumerate(runs.items()):
        once = run.passes(1).mean()
        marker = figures.STYLES[at % len(figures.STYLES)][0]
        colour = figures.COLOURS[at % len(figures.COLOURS)]
        fill = "none" if at >= len(figures.STYLES) else colour
        style = {"color": colour, "markerfacecolor": fill, "label": name}
        solved.plot(once, run.passes(most).mean(), marker, **style)
        different.plot(once, run.means("different").mean(), marker, **style)
    solved.set(xlabel="pass@1", ylabel=f"pass@{most}", title=_title(task, quick))
    words = f"different right answers of {most}"
    different.set(xlabel="pass@1", ylabel=words, title=_title(task, quick))
    different.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    figures.save(figure, study.folder / f"{task}-methods.png")


def _title(task: str, quick: bool) -> str:
    return f"{task}, quick: no result" if quick else task
