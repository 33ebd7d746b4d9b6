"""What runs are called in tables, and which of the paper's numbers stand beside them."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sake_jax.evaluate.presets import Preset, presets
from sake_jax.evaluate.results import Results

UNPRINTED = ("strength", "bandwidth", "attention_bandwidth")
"""What the paper searched and does not print: a run may have values of its own."""
NAMELESS = "without a name"
"""A model that nobody named."""


def titles(runs: Sequence[Results]) -> list[str]:
    """One for each run: its model too where runs are of several, and its folder where two titles
    are the same."""
    several = len({_model(run) for run in runs}) > 1
    names = [title(run, with_model=several) for run in runs]
    short = len({run.folder.name for run in runs}) == len(runs)
    return [
        f"{name}, {run.folder.name if short else run.folder}" if names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]


def title(run: Results, with_model: bool = False) -> str:
    """Its preset, and in brackets what is not as in the paper's row; or how it was sampled."""
    about, row = run.settings["about"], _row(run)
    name = about.get("name") or run.folder.name
    notes = [f"model {_model(run)}"] if with_model else []
    if row is not None:
        name, notes = row.name, list(dict.fromkeys([*_changes(run, row), *notes]))
    return f"{name} ({', '.join(notes)})" if notes else name


def printed(run: Results) -> dict[str, float]:
    """What the paper reports of the run's preset: nothing where model or settings are others.

    The paper's model is known by its name, or by that of its folder.
    """
    row = _row(run)
    if row is None or _changes(run, row, free=UNPRINTED):
        return {}
    return row.printed(run.settings["task"]["name"])


def _row(run: Results) -> Preset | None:
    return presets().get(run.settings["about"].get("preset"))


def _changes(run: Results, row: Preset, free: Sequence[str] = ()) -> list[str]:
    """What is not as in a row of the paper, in words."""
    about, usual = run.settings["about"], dataclasses.asdict(row.request)
    mine: dict[str, Any] = usual | about.get("request", {})
    changed = [f"{name} {mine[name]}" for name in mine if mine[name] != usual.get(name)]
    same = _model(run).lower() == Path(row.model).name.lower()
    model = [] if same else [f"model {_model(run)}"]
    chat = ["as a chat"] if run.settings["chat"] else []
    return model + chat + [words for words in changed if words.split()[0] not in free]


def _model(run: Results) -> str:
    """The last part of its name or folder."""
    return Path(run.settings["about"].get("model") or NAMELESS).name
