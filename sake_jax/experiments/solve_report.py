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
POINT = 0.01
"""By how much pass@1 may be lower than the chosen temperature's."""
AIMS = ("solve", "vote")
"""What a setting is chosen for: pass@k of all samples, or votes of five."""


def choose(study: Study, task: str, method: str) -> dict[str, Cell]:
    """The setting of a method that is best on development problems, for each of `AIMS`.

    To solve: the highest pass@k of all samples, among settings whose pass@1 is not more than a
    point below that of the temperature chosen by the same rule; the highest pass@1 if none is.
    """
    rows = study.rows(task=task, method=method, split="development")
    solving = max(rows, key=lambda row: (_solved(row), _once(row)))
    if method != BASELINE:
        floor = _once(_best_temperature(study, task)) - POINT
        fair = [row for row in rows if _once(row) >= floor]
        key = (lambda row: (_solved(row), _once(row))) if fair else _once
        solving = max(fair or rows, key=key)
    voting = max(rows, key=lambda row: (np.mean(row["vote 5"]), _once(row)))
    names = ("task", "method", "order", "setting")
    each = ({name: row[name] for name in names} for row in (solving, voting))
    return dict(zip(AIMS, each, strict=True))


def _best_temperature(study: Study, task: str) -> dict[str, Any]:
    rows = study.rows(task=task, method=BASELINE, split="development")
    return max(rows, key=lambda row: (_solved(row), _once(row)))


def _once(row: dict[str, Any]) -> float:
    """pass@1."""
    return float(np.mean(row["right"]))


def _solved(row: dict[str, Any]) -> float:
    """The share of problems with a right answer in a group."""
    return float(np.mean(np.asarray(row["right"]) > 0))


class Reported:
    """What a method's chosen setting did on the test problems."""

    def __init__(self, study: Study, chosen: Cell, samples: int):
        self.rows, self.samples = study.rows(**chosen, split="test"), samples
        own, heat = self.rows[0]["setting"]
        number = f"{own:g}, " if own else ""
        self.name = f"{number}T = {heat:g}, {self.rows[0]['order']}"
        self.evaluations = self.rows[0]["evaluations"]

    def passes(self, k: int) -> np.ndarray:
        """(problems,) pass@k, over groups and seeds."""
        return pass_at_k(self.samples, self._values("right"), k).mean(axis=0)

    def means(self, name: str) -> np.ndarray:
        """(problems,) the mean of another quantity."""
        return self._values(name).mean(axis=0)

    def _values(self, name: str) -> np.ndarray:
        """(groups of all seeds, problems)."""
        return np.concatenate([np.asarray(row[name]) for row in self.rows])


def report(
    study: Study, tasks: Sequence[str], methods: Sequence[str], samples: int, quick: bool
) -> None:
    """Writes table.md, and two figures for each task."""
    ks = tuple(k for k in KS if k <= samples)
    parts = [_about(study, tasks, samples, quick)]
    for task in tasks:
        runs = {aim: _tested(study, task, methods, aim, samples) for aim in AIMS}
        parts += [f"## {task}", _passes(runs["solve"], ks), _votes(runs["vote"], samples)]
        _curves(study, task, runs["solve"], ks, quick)
        _against(study, task, runs["solve"], samples, quick)
    study.write("table.md", "\n\n".join(parts) + "\n")


def _tested(
    study: Study, task: str, methods: Sequence[str], aim: str, samples: int
) -> dict[str, Reported]:
    chosen = {method: choose(study, task, method)[aim] for method in methods}
    return {method: Reported(study, cell, samples) for method, cell in chosen.items()}


def _about(study: Study, tasks: Sequence[str], samples: int, quick: bool) -> str:
    tested = study.rows(**choose(study, tasks[0], BASELINE)["solve"], split="test")
    groups, problems = np.asarray(tested[0]["right"]).shape
    words = "A quick run: it shows that all works, and claims nothing. " if quick else ""
    return (
        f"# Solve more\n\n{words}{problems} test problems, {groups * len(tested)} groups of "
        f"{samples} samples for each ({len(tested)} seeds), one token a step. A method's setting "
        "is the one with the highest "
        f"pass@{samples} on development problems among those whose pass@1 is at most a point below "
        "that of the temperature chosen in the same way; for votes, the one with the highest vote "
        "of five. Every method has as many settings, in three orders of writing. Differences are "
        "paired by problem; 95 % bootstrap intervals over problems. An evaluation is one pass of "
        "the network for one sample."
    )


def _passes(runs: dict[str, Reported], ks: Sequence[int]) -> str:
    base, most = runs[BASELINE], ks[-1]
    head = ["method", "setting", *(f"pass@{k}" for k in ks), "different", "evaluations"]
    lines = [[*head, "pass@1 gained", f"pass@{most} gained"]]
    for method, run in runs.items():
        rates = [f"{run.passes(k).mean():.3f}" for k in ks]
        line = [method, run.name, *rates, f"{run.means('different').mean():.2f}"]
        gained = ["", ""] if run is base else [_gained(run, base, k) for k in (1, most)]
        lines.append([*line, str(run.evaluations), *gained])
    return table(lines)


def _gained(run: Reported, base: Reported, k: int) -> str:
    return format_interval(difference(run.passes(k), base.passes(k)), "+.3f")


def difference(own: np.ndarray, base: np.ndarray) -> Estimate:
    """The mean difference over problems, with its bootstrap interval: paired."""
    return sj.metrics.estimate(own - base)


def _votes(runs: dict[str, Reported], samples: int) -> str:
    base = runs[BASELINE]
    lines = [["method", "setting", "vote@5", f"vote@{samples}", "vote@5 gained"]]
    for method, run in runs.items():
        five, most = (run.means(name) for name in ("vote 5", "vote all"))
        gained = ""
        if run is not base:
            gained = format_interval(difference(five, base.means("vote 5")), "+.3f")
        lines.append([method, run.name, f"{five.mean():.3f}", f"{most.mean():.3f}", gained])
    return table(lines)


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
    axes.legend(frameon=False, loc="lower right")
    figures.save(figure, study.folder / f"{task}-curves.png")


def _against(study: Study, task: str, runs: dict[str, Reported], samples: int, quick: bool) -> None:
    """pass@k of all samples against pass@1, every method a point."""
    figure, ((axes,),) = figures.panels(1, 1, (7.2, 4.6))
    for at, (name, run) in enumerate(runs.items()):
        once, all_of_them = run.passes(1).mean(), run.passes(samples).mean()
        marker = figures.STYLES[at % len(figures.STYLES)][0]
        colour = figures.COLOURS[at % len(figures.COLOURS)]
        fill = "none" if at >= len(figures.STYLES) else colour
        axes.plot(once, all_of_them, marker, color=colour, markerfacecolor=fill, label=name)
    axes.set(xlabel="pass@1", ylabel=f"pass@{samples}", title=_title(task, quick))
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    figures.save(figure, study.folder / f"{task}-methods.png")


def _title(task: str, quick: bool) -> str:
    return f"{task}, quick: no result" if quick else task
