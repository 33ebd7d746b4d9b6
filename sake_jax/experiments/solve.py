"""Explore more to solve more? Puzzles with right answers, many samples of each, every method.

Settings are chosen on development problems and reported on test problems; samples are drawn in
groups, so that what couples samples is measured as it is used: pass@32 of 32 samples drawn
together.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sake_jax as sj
from sake_jax.checks import one_of, require, whole
from sake_jax.evaluate import Task, puzzle
from sake_jax.evaluate.puzzles import GAMES, RIGHT
from sake_jax.experiments.solve_methods import BASELINE, METHODS, ORDERS, Setting
from sake_jax.experiments.solve_report import choose, report
from sake_jax.experiments.study import Cell, Result, Study
from sake_jax.metrics import majority

SIZES = {"development": (64, 1), "test": (200, 2)}
"""Problems of a split, and groups of samples that are drawn of each with one seed."""
QUICK = {"development": (6, 1), "test": (12, 1)}
QUICK_METHODS = (BASELINE, "SAKE across", "even draws and order")
TOGETHER = 32
"""Samples of a group."""
PROMPTS = 16
"""Problems in one batch."""


def solve(
    folder: str | Path,
    *,
    quick: bool = False,
    seeds: int = 3,
    progress: bool = True,
    model: str | Path = "runs",
    tasks: str | None = None,
    samples: int | None = None,
) -> Study:
    """pass@k, votes and different right answers of every method; writes table.md and figures.

    Args:
      folder: for results.jsonl and the report; a stopped run goes on there.
      quick: few problems and methods, to see it work; it claims nothing.
      seeds: runs of each chosen setting on the test problems.
      progress: whether to show a bar.
      model: the folder in which `sake-jax train` has made the tasks' models, each in one of its
        task's name.
      tasks: names with commas, 'countdown-3,countdown-4,products' by default.
      samples: of a group, 32 by default.
    """
    chosen = [one_of("task", name, tuple(GAMES)) for name in (tasks or ",".join(GAMES)).split(",")]
    chosen = chosen[:1] if quick else chosen
    count = whole("samples", (8 if quick else TOGETHER) if samples is None else samples, at_least=5)
    sizes, seeds = (QUICK, 1) if quick else (SIZES, seeds)
    methods = QUICK_METHODS if quick else tuple(METHODS)
    settings = {"experiment": "solve", "tasks": chosen, "samples": count, "quick": quick}
    study = Study(folder, settings, progress)
    for name in chosen:
        bench = Bench(name, trained(model, name), sizes, count)
        cells = [cell for method in methods for cell in grid(name, method, quick)]
        study.measure([[cell] for cell in cells], bench.measure)
        best = [cell for method in methods for cell in choose(study, name, method).values()]
        best = list({str(cell): cell for cell in best}.values())
        tested = [cell | {"split": "test", "seed": seed} for cell in best for seed in range(seeds)]
        study.measure([[cell] for cell in tested], bench.measure)
    report(study, chosen, methods, count, quick)
    return study


def trained(folder: str | Path, task: str) -> Path:
    """The folder of a task's model."""
    place = Path(folder) / task / "model"
    remedy = f"sake-jax train {task} --out {place.parent} makes it"
    require(place.is_dir(), f"{task} needs a model in {place}", "none", remedy)
    return place


def grid(task: str, method: str, quick: bool) -> list[Cell]:
    """Every setting of a method in every order, on development problems."""
    settings = METHODS[method].settings[:: 3 if quick else 1]
    orders = ("random",) if quick else tuple(ORDERS)
    return [
        {"task": task, "method": method, "order": order, "setting": list(setting)}
        | {"split": "development", "seed": 0}
        for order in orders
        for setting in settings
    ]


class Bench:
    """A model, its problems, and what is measured of its answers."""

    def __init__(self, name: str, folder: Path, sizes: dict[str, tuple[int, int]], samples: int):
        self.lm, self.samples, self.sizes = sj.load(folder), samples, sizes
        self.tasks = {split: puzzle(name, split=split, limit=n) for split, (n, _) in sizes.items()}

    def measure(self, group: Sequence[Cell]) -> list[Result]:
        """Of each cell, problem by problem."""
        return [self._measured(cell) for cell in group]

    def _measured(self, cell: Cell) -> Result:
        task, method = self.tasks[cell["split"]], METHODS[cell["method"]]
        own, heat = cell["setting"]
        setting: Setting = (own, heat)
        assert task.length is not None
        sampler = method.sampler(self.lm, task.length, setting, cell["order"])
        _, groups = self.sizes[cell["split"]]
        # A group's seed holds the cell's: no two seeds share a group.
        texts = [self._texts(task, sampler, 1000 * cell["seed"] + at) for at in range(groups)]
        return _scores(task, texts) | {"evaluations": method.evaluations * task.length}

    def _texts(self, task: Task, sampler: Any, seed: int) -> list[list[str]]:
        prompts = [problem.prompt for problem in task.problems]
        out = sj.generate(
            self.lm,
            sampler,
            prompts,
            samples=self.samples,
            batch=PROMPTS * self.samples,
            key=jax.random.key(seed),
        )
        return [[text or "" for text in row] for row in out.texts]


def _scores(task: Task, groups: Sequence[list[list[str]]]) -> Result:
    """(groups, problems) how many are right, how many different ones, and votes that are right."""
    right, different, votes = [], [], {5: [], 0: []}
    for texts in groups:
        pairs = [
            (problem, text)
            for problem, row in zip(task.problems, texts, strict=True)
            for text in row
        ]
        verdicts = np.asarray(task.judge(pairs), object).reshape(len(texts), -1)
        right.append([sum(v.correct[RIGHT] for v in row) for row in verdicts])
        good = [{v.answer[RIGHT] for v in row if v.correct[RIGHT]} for row in verdicts]
        different.append([len(answers) for answers in good])
        for size, each in votes.items():
            voted = [majority([v.answer[RIGHT] for v in row[: size or None]]) for row in verdicts]
            each.append([int(vote in answers) for vote, answers in zip(voted, good, strict=True)])
    return {"right": right, "different": different, "vote 5": votes[5], "vote all": votes[0]}
