"""What a run on a task has written, read back."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sake_jax.checks import one_of, require
from sake_jax.journal import Line, read_lines


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
        found = self._each(lambda line: line["correct"][rule])
        return np.asarray(found, bool).reshape(len(self.lines), self.settings["samples"])

    def answers(self, rule: str) -> list[list[str]]:
        """What samples answered, as the rule reads them."""
        one_of("rule", rule, self.rules)
        return self._each(lambda line: line["answer"].get(rule, ""))

    def _each(self, value: Callable[[Line], Any]) -> list[list[Any]]:
        return [[value(line) for line in lines] for lines in self.lines.values()]


def read(folder: str | Path) -> Results:
    """The results of a run: of all its shards that have written here."""
    folder = Path(folder)
    written = folder / "settings.json"
    rule = f"{folder} must hold a run of sake-jax eval"
    require(written.is_file(), rule, "no settings.json", "name the folder given as --out")
    settings = json.loads(written.read_text())
    require("task" in settings, rule, sorted(settings), "name the folder given as --out")
    found: dict[str, dict[int, Line]] = {}
    for path in sorted(folder.glob("results*.jsonl")):
        for line in read_lines(path):
            samples = found.setdefault(line["problem"], {})
            same = samples.setdefault(line["sample"], line)["text"] == line["text"]
            rule = f"shards in {folder} must agree"
            require(same, rule, (line["problem"], line["sample"]), "they are of different runs")
    whole = range(settings["samples"])
    lines = {
        name: [samples[at] for at in whole]
        for name, samples in sorted(found.items(), key=_place)
        if all(at in samples for at in whole)
    }
    return Results(folder, settings, lines)


def _place(named: tuple[str, dict[int, Line]]) -> int:
    """A problem's, in its task: shards and interruptions leave no trace."""
    return next(iter(named[1].values()))["place"]
