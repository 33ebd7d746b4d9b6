"""Explore more to solve more? Puzzles with right answers, many samples of each, every method.

Settings are chosen on development problems and reported on test problems; samples are drawn in
groups, so that what couples samples is measured as it is used: pass@32 of 32 samples drawn
together.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sake_jax as sj
from sake_jax.checks import one_of, require, whole
from sake_jax.conversion import built_in
from sake_jax.evaluate import Task, puzzle
from sake_jax.evaluate.puzzles import GAMES, RIGHT
from sake_jax.experiments.solve_methods import BASELINE, METHODS, ORDERS, Setting
from sake_jax.experiments.solve_report import choose, report
from sake_jax.experiments.study import Cell, Result, Study
from sake_jax.generation import encode_prompts, model_identity
from sake_jax.metrics import majority
from sake_jax.samplers import Sampler
from sake_jax.typing import Key

PROBLEMS = {"development": 64, "test": 200}
"""How many each split has."""
QUICK = {"development": 6, "test": 12}
QUICK_METHODS = (BASELINE, "SAKE across", "distinct")
GROUPS = {"solve": {"development": 1, "test": 2}, "vote": {"development": 4, "test": 4}}
"""Groups of samples that are drawn of each problem with one seed."""
ROWS = 512
"""Of one batch."""
TOGETHER = 32
"""Samples of a group, to solve."""
VOTERS = 5
"""Samples of a group that votes: drawn together too, not the first of many."""


def solve(
    folder: str | Path,
    *,
    quick: bool = False,
    seeds: int = 3,
    progress: bool = True,
    model: str | Path | sj.LanguageModel | None = None,
    tasks: str | None = None,
    methods: str | None = None,
    samples: int | None = None,
) -> Study:
    """pass@k, votes and different right answers of every method; writes table.md and figures.

    Args:
      folder: for results.jsonl and the report; a stopped run goes on there.
      quick: few problems and methods, to see it work; it claims nothing.
      seeds: runs of each chosen setting on the test problems.
      progress: whether to show a bar.
      model: the folder in which `sake-jax train` has made other models than those in the box, each
        in one of its task's name; or a model of your own, for the one task that `tasks` names.
      tasks: names with commas, of 'countdown-3,countdown-4,products'; by default those whose model
        is in the box, or all in another folder.
      methods: names of `METHODS` with semicolons, all by default; the temperature is always there.
      samples: of a group that is to solve a problem, 32 by default. Votes are of five.
    """
    usual = [name for name in GAMES if model is not None or name in built_in()]
    named = usual if tasks is None else tasks.split(",")
    chosen = [one_of("task", name, tuple(GAMES)) for name in named]
    own = model if isinstance(model, sj.LanguageModel) else None
    rule = "a model of your own must play one task"
    require(own is None or len(chosen) == 1, rule, chosen, "name it: tasks='countdown-3'")
    chosen = chosen[:1] if quick else chosen
    count = whole("samples", (8 if quick else TOGETHER) if samples is None else samples)
    sizes, seeds = (QUICK, 1) if quick else (PROBLEMS, seeds)
    compared = QUICK_METHODS if quick else tuple(METHODS)
    if methods is not None:
        wanted = [one_of("method", name.strip(), tuple(METHODS)) for name in methods.split(";")]
        compared = tuple(dict.fromkeys([BASELINE, *wanted]))
    study = Study(folder, {"experiment": "solve", "quick": quick}, progress)
    runs = []
    for name in chosen:
        bench = Bench(name, own or sj.load(_place(model, name)), sizes)
        for aim, together in (("solve", count), ("vote", VOTERS)):
            about = bench.about | {"aim": aim, "samples": together}
            cells = [about | cell for method in compared for cell in grid(method, quick)]
            study.measure([[cell] for cell in cells], bench.measure)
            best = [choose(study, about, method) for method in compared]
            tested = [about | cell | {"split": "test"} for cell in best]
            study.measure(
                [[cell | {"seed": seed} for seed in range(seeds)] for cell in tested], bench.measure
            )
            runs.append(about)
            report(study, runs, compared, quick)
    return study


def _place(model: Any, task: str) -> str | Path:
    """Where the model of a task is: in the box, unless a folder of models is named."""
    in_box = model is None and task in built_in()
    return task if in_box else trained(model or "runs", task)


def trained(folder: str | Path, task: str) -> Path:
    """The folder of a task's model."""
    place = Path(folder) / task / "model"
    remedy = f"sake-jax train {task} --out {place.parent} makes it"
    require(place.is_dir(), f"{task} needs a model in {place}", "none", remedy)
    return place


def grid(method: str, quick: bool) -> list[Cell]:
    """Every setting of a method in every order, on development problems."""
    settings = METHODS[method].settings[:: 3 if quick else 1]
    orders = ("random",) if quick else tuple(ORDERS)
    return [
        {"method": method, "order": order, "setting": list(setting)}
        | {"split": "development", "seed": 0}
        for order in orders
        for setting in settings
    ]


class Bench:
    """A model, its problems, and what is measured of its answers."""

    def __init__(self, name: str, lm: sj.LanguageModel, sizes: dict[str, int]):
        self.lm = lm
        self.tasks = {split: puzzle(name, split=split, limit=n) for split, n in sizes.items()}
        self.about = {"task": name, "weights": model_identity(self.lm)["checksum"]}

    def measure(self, group: Sequence[Cell]) -> list[Result]:
        """Of each cell, problem by problem."""
        return [self._measured(cell) for cell in group]

    def _measured(self, cell: Cell) -> Result:
        task, method = self.tasks[cell["split"]], METHODS[cell["method"]]
        own, heat = cell["setting"]
        setting: Setting = (own, heat)
        assert task.length is not None
        sampler = method.sampler(self.lm, task.length, setting, cell["order"])
        groups = GROUPS[cell["aim"]][cell["split"]]
        # A group's seed holds the cell's: no two seeds share a group.
        keys = [jax.random.key(1000 * cell["seed"] + at) for at in range(groups)]
        draw = self._texts if method.expand == 1 else self._selected(method.expand, own)
        texts = [draw(task, sampler, key, cell["samples"]) for key in keys]
        return _scores(task, texts) | {"evaluations": method.evaluations(task.length)}

    def _texts(self, task: Task, sampler: Sampler, key: Key, samples: int) -> list[list[str]]:
        prompts = [problem.prompt for problem in task.problems]
        out = sj.generate(
            self.lm,
            sampler,
            prompts,
            samples=samples,
            batch=ROWS,
            key=key,
        )
        return [[text or "" for text in row] for row in out.texts]

    def _selected(self, expand: int, weight: float) -> Callable[..., list[list[str]]]:
        """As `_texts`, of `run_selected`, which takes canvases."""
        lm = self.lm
        mask_id = lm.config.mask_id
        assert mask_id is not None

        def draw(task: Task, sampler: Sampler, key: Key, samples: int) -> list[list[str]]:
            prompts = encode_prompts(lm, [problem.prompt for problem in task.problems])
            many, length, texts = ROWS // samples, sampler.plan.length, []
            for at in range(0, len(prompts), many):
                canvas = sj.canvas(
                    prompts[at : at + many], length, mask_id=mask_id, samples=samples
                )
                own = jax.random.fold_in(key, at)
                options = {"expand": expand, "weight": weight}
                made = sj.run_selected(sampler, lm.params, own, canvas, **options)
                rows = np.asarray(made.canvas.tokens)[:, -length:].reshape(-1, samples, length)
                texts += [lm.tokenizer.batch_decode(row.tolist()) for row in rows]
            return texts

        return draw


def _scores(task: Task, groups: Sequence[list[list[str]]]) -> Result:
    """(groups, problems) how many are right, how many different ones, and votes that are right."""
    right, different, votes = [], [], []
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
        voted = [majority([v.answer[RIGHT] for v in row]) for row in verdicts]
        votes.append([int(vote in answers) for vote, answers in zip(voted, good, strict=True)])
    return {"right": right, "different": different, "vote": votes}
