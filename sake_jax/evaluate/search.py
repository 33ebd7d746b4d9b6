"""Settings of each method chosen on some problems, and compared on others."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sake_jax.checks import number, one_of, require, whole
from sake_jax.evaluate.report import report
from sake_jax.evaluate.results import Results
from sake_jax.evaluate.run import run
from sake_jax.evaluate.task import Task
from sake_jax.files import write_atomically
from sake_jax.metrics import pass_rate
from sake_jax.models import LanguageModel
from sake_jax.samplers import Request
from sake_jax.tables import table

Grid = Mapping[str, Sequence[Request]]
"""Requests of each method."""


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search chose."""

    best: dict[str, Request]
    """Of each method."""
    tuned: dict[str, list[float]]
    """The score of each of a method's requests, on the problems it was chosen on."""
    held_out: dict[str, Results]
    """The chosen ones, on the other problems."""


def grid(base: Request, **choices: Sequence[Any]) -> list[Request]:
    """All combinations of choices for fields of a request.

    >>> [each.temperature for each in grid(Request(), temperature=(0.2, 0.7))]
    [0.2, 0.7]
    """
    fields = [field.name for field in dataclasses.fields(Request)]
    for name in choices:
        one_of("a choice", name, fields)
    rows = itertools.product(*choices.values())
    return [dataclasses.replace(base, **dict(zip(choices, row, strict=True))) for row in rows]


def default_grid(base: Request, width: int) -> dict[str, list[Request]]:
    """Twelve requests for temperature, for D-CFG and for SAKE, as the paper tunes each.

    Temperatures are searched for all of them. SAKE's σ is the median distance of the rows, or the
    size √`width` of rows that are normalised, its σ_attn the usual one, or a longer one.
    """
    plain = base.unguided
    guided, sake = (dataclasses.replace(plain, guidance=name) for name in ("cfg", "sake"))
    kernels = ({}, {"attention_bandwidth": 80.0}, {"bandwidth": width**0.5})
    return {
        "temperature": grid(plain, temperature=(0.2, 0.5, 0.7, 1.0), top_p=(0.9, 0.95, 1.0)),
        "d-cfg": grid(guided, temperature=(0.2, 0.5, 0.7), strength=(0.25, 0.5, 1.0, 2.0)),
        "sake": [
            dataclasses.replace(each, **kernel)
            for each in grid(sake, temperature=(0.2, 0.7), strength=(0.3, 1.0))
            for kernel in kernels
        ],
    }


def search(
    lm: LanguageModel,
    task: Task,
    requests: Grid,
    folder: str | Path,
    *,
    k: int,
    rule: str | None = None,
    share: float = 0.5,
    seed: int = 0,
    **options: Any,
) -> SearchResult:
    """Chooses each method's request by pass@k on one part of the problems, and compares them on
    the other. All methods must have the same number of requests; a stopped search goes on.

    Args:
      lm: the model.
      task: what is asked.
      requests: of each method.
      folder: for the runs, search.md, and the report of what was chosen.
      k: of pass@k, and how many samples are drawn of each problem unless `samples` says.
      rule: by which answers are right; the task's first by default.
      share: of the problems, to choose on.
      seed: of the split and of the runs.
      **options: of `run`.
    """
    sizes = {name: len(each) for name, each in requests.items()}
    require(len(set(sizes.values())) == 1, "methods must have equally many requests", sizes, "even")
    require(task.rules, "a search needs right answers", task.name, "choose a task with them")
    rule = task.rules[0] if rule is None else one_of("rule", rule, task.rules)
    options = {"samples": whole("k", k), "seed": seed} | options
    first, second = split(task, share, seed)
    tuned, best, held_out = {}, {}, {}
    for name, each in requests.items():
        runs = [
            run(lm, request.build(lm), first, Path(folder) / name / f"tuning-{at}", **options)
            for at, request in enumerate(each)
        ]
        tuned[name] = [pass_rate(results.correct(rule), k).value for results in runs]
        best[name] = each[int(np.argmax(tuned[name]))]
        about = {"name": name, "request": dataclasses.asdict(best[name])}
        place = Path(folder) / name / "held-out"
        held_out[name] = run(lm, best[name].build(lm), second, place, about=about, **options)
    _write(Path(folder), requests, tuned, rule, k)
    report(list(held_out.values()), folder, ks=(1, k) if k > 1 else (1,))
    return SearchResult(best, tuned, held_out)


def split(task: Task, share: float = 0.5, seed: int = 0) -> tuple[Task, Task]:
    """The task in two, without a problem in both."""
    count = len(task.problems)
    size = round(number("share", share, above=0) * count)
    rule, remedy = "both parts must have problems", "change share, or take more problems"
    require(0 < size < count, rule, (size, count - size), remedy)
    order = np.random.default_rng(seed).permutation(count)
    parts = sorted(order[:size]), sorted(order[size:])
    made = [tuple(task.problems[at] for at in part) for part in parts]
    return dataclasses.replace(task, problems=made[0]), dataclasses.replace(task, problems=made[1])


def _write(
    folder: Path, requests: Grid, tuned: Mapping[str, list[float]], rule: str, k: int
) -> None:
    """All that was tried, the chosen ones in bold."""
    lines = [["method", "request", f"pass@{k}, {rule}"]]
    for name, each in requests.items():
        chosen = int(np.argmax(tuned[name]))
        for at, (request, score) in enumerate(zip(each, tuned[name], strict=True)):
            cell = f"**{score:.3f}**" if at == chosen else f"{score:.3f}"
            lines.append([name, _differs(request), cell])
    about = "Chosen on one part of the problems; report.md has them on the other."
    write_atomically(folder / "search.md", f"{about}\n\n{table(lines)}\n")


def _differs(request: Request) -> str:
    """What is not as by default."""
    usual = dataclasses.asdict(Request())
    mine = dataclasses.asdict(request)
    return ", ".join(f"{name} {value}" for name, value in mine.items() if value != usual[name])
