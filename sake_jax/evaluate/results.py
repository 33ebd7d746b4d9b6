"""What a run on a task has written, read back."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sake_jax.checks import one_of, require
from sake_jax.journal import Line, read_lines, wrong_line

FIELDS = ("problem", "place", "sample", "text", "ended", "evaluations", "cut")
FIELDS += ("correct", "answer", "why")
"""What each line of results.jsonl has."""


@dataclasses.dataclass(frozen=True)
class Results:
    """Samples of problems, judged."""

    folder: Path
    settings: dict[str, Any]
    lines: dict[str, list[Line]]
    """Of each problem whose samples are all there, in their order."""

    @property
    def rules(self) -> list[str]:
        """By which an answer may be right."""
        return self.settings["task"]["rules"]

    @property
    def complete(self) -> bool:
        """Whether every problem of the task is there."""
        return len(self.lines) == self.settings["task"]["problems"]

    @property
    def texts(self) -> list[list[str]]:
        """Of each problem."""
        return self._each(lambda line: line["text"] or "")

    @property
    def evaluations(self) -> np.ndarray:
        """(problems, samples) evaluations of the network."""
        return np.asarray(self._each(lambda line: line["evaluations"]), np.int64)

    def correct(self, rule: str) -> np.ndarray:
        """(problems, samples) whether a sample is right by a rule."""
        one_of("rule", rule, self.rules)
        correct = self._each(lambda line: line["correct"][rule])
        return np.asarray(correct, bool).reshape(len(self.lines), self.settings["samples"])

    def answers(self, rule: str) -> list[list[str]]:
        """What samples answered, as the rule reads them."""
        one_of("rule", rule, self.rules)
        return self._each(lambda line: line["answer"].get(rule, ""))

    def _each(self, value: Callable[[Line], Any]) -> list[list[Any]]:
        return [[value(line) for line in lines] for lines in self.lines.values()]


def read_results(folder: str | Path) -> Results:
    """The results of a run: of all its shards that have written here."""
    folder = Path(folder)
    settings = _settings(folder)
    by_problem: dict[str, dict[int, Line]] = {}
    for line in read_written(folder):
        samples = by_problem.setdefault(line["problem"], {})
        same = samples.setdefault(line["sample"], line)["text"] == line["text"]
        rule = f"shards in {folder} must agree"
        require(same, rule, (line["problem"], line["sample"]), "they are of different runs")
    _require_own(folder, settings["task"]["problems"], by_problem)
    whole = range(settings["samples"])
    lines = {
        name: [samples[at] for at in whole]
        for name, samples in sorted(by_problem.items(), key=_place)
        if all(at in samples for at in whole)
    }
    return Results(folder, settings, lines)


def read_written(folder: Path) -> Iterator[Line]:
    """The lines of all shards; those of other processes may still grow."""
    for path in sorted(folder.glob("results*.jsonl")):
        for number, line in enumerate(read_lines(path), 1):
            missing = [name for name in FIELDS if name not in line]
            if missing:
                raise wrong_line(path, number, ValueError(f"nothing named {missing[0]!r}"))
            yield line


def _settings(folder: Path) -> dict[str, Any]:
    path, remedy = folder / "settings.json", "name the folder given as --out"
    rule = f"{folder} must hold a run of sake-jax eval"
    require(path.is_file(), rule, "no settings.json", remedy)
    try:
        settings = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(
            f"{path} must be JSON, got {error}; bring back the one that was written."
        ) from error
    right = isinstance(settings, dict) and "task" in settings
    require(right, rule, "settings of something else", remedy)
    return settings


def _require_own(folder: Path, problems: int, by_problem: dict[str, dict[int, Line]]) -> None:
    """Refuses lines of other tasks: a place of this one belongs to one problem."""
    owners: dict[int, str] = {}
    for name, samples in by_problem.items():
        for place in {line["place"] for line in samples.values()}:
            own = 0 <= place < problems and owners.setdefault(place, name) == name
            rule = f"results in {folder} must be of one run with {problems} problems"
            require(own, rule, (name, place), "take out the files of other runs")


def _place(named: tuple[str, dict[int, Line]]) -> int:
    """A problem's, in its task: shards and interruptions leave no trace."""
    return next(iter(named[1].values()))["place"]
