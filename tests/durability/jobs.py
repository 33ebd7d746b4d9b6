"""What is killed: small runs of everything that writes to a folder and can be gone on with."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scripted import scripted

import sake_jax as sj
from sake_jax import figures
from sake_jax.conversion import convert, export, open_checkpoint, units, verify
from sake_jax.conversion.manifest import Manifest
from sake_jax.evaluate.report import report
from sake_jax.evaluate.run import run as run_task
from sake_jax.evaluate.task import Problem, Task, Verdict
from sake_jax.experiments.study import Study
from sake_jax.journal import read_lines
from sake_jax.training import Trainer
from sake_jax.training.figure import loss_curve
from sake_jax.training.recipe import Model, Recipe, TextData, Training

GOLDENS = Path(__file__).parents[1] / "goldens"


@dataclasses.dataclass(frozen=True)
class Job:
    """A run in a folder, and all that it must have made in the end, as JSON has it."""

    run: Callable[[Path], Any]
    read: Callable[[Path], Any]


def conversion(folder: Path) -> None:
    """Three batches. A folder that is complete must be right, and is not converted again."""
    units.BATCH = 60_000
    if not (folder / "manifest.json").exists() or (folder / "journal.jsonl").exists():
        convert(GOLDENS / "llada", folder)


def converted(folder: Path) -> Any:
    assert verify(folder).ok
    read = open_checkpoint(folder).source.read
    manifest = Manifest.read(folder)
    sums = {name: hashlib.sha256(read(name, ()).tobytes()).hexdigest() for name in manifest.units}
    files = sorted(path.name for path in folder.iterdir())
    return [dataclasses.asdict(manifest), sums, files]


def exporting(folder: Path) -> None:
    """Two shards; a folder that is there must be whole."""
    if not (folder / "model").exists():
        folder.mkdir(exist_ok=True)
        export(GOLDENS / "llada", folder / "model", shard_bytes=200_000)


def exported(folder: Path) -> Any:
    assert verify(folder / "model").ok
    return sums(folder)


def generation(folder: Path) -> None:
    """Three batches."""
    lm = sj.load(GOLDENS / "llada")
    sampler = sj.masked(lm, length=4, draw=sj.temperature(0.9))
    options = {"samples": 2, "batch": 2, "key": jax.random.key(0)}
    sj.generate(lm, sampler, [[1, 2], [3, 4], [5, 6]], save=folder, **options)


def generated(folder: Path) -> Any:
    rows = read_lines(folder / "rows.jsonl")
    assert len(rows) == len({(row["prompt"], row["sample"]) for row in rows}) == 6
    return [sorted(rows, key=lambda row: (row["prompt"], row["sample"])), names(folder)]


def evaluation(folder: Path) -> None:
    """Two chunks of two problems, and the report."""
    lm = scripted({"yes": 0.5, "no": 0.5})
    problems = tuple(Problem(f"p{at}", "?" * at, {}) for at in range(1, 5))
    task = Task("asked", problems, (), ("tests",), judged)
    sampler = sj.masked(lm, length=1, draw=sj.temperature(1.0))
    results = run_task(lm, sampler, task, folder, samples=2, batch=4)
    report([results], folder)


def judged(answers: Any) -> list[Verdict]:
    return [Verdict({"tests": text == "yes"}, {"tests": text}, "") for _, text in answers]


def evaluated(folder: Path) -> Any:
    lines = read_lines(folder / "results.jsonl")
    assert len(lines) == len({(line["problem"], line["sample"]) for line in lines}) == 8
    lines.sort(key=lambda line: (line["problem"], line["sample"]))
    return [lines, (folder / "report.md").read_text(), names(folder)]


def experiment(folder: Path) -> None:
    """Three cells in two groups, arrays of one of them, a table and a figure."""
    study = Study(folder, {"experiment": "squares"}, progress=False)
    cells = [{"x": x, "seed": 0} for x in (1, 2, 3)]

    def measured(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for cell in group:
            study.write(f"points-{cell['x']}.bin", np.full(4, cell["x"]).tobytes())
        return [{"square": cell["x"] ** 2} for cell in group]

    study.measure([cells[:2], cells[2:]], measured)
    study.write("table.md", str([row["square"] for row in study.rows()]))
    points = np.asarray([[[row["x"], row["square"]]] for row in study.rows()], float)
    figures.trade_off(folder / "squares.png", {"": {"": points}}, across="x", up="y")


def experimented(folder: Path) -> Any:
    lines = read_lines(folder / "results.jsonl")
    for line in lines:
        del line["found"]["seconds"]
    files = {path.name: sum_of(path) for path in folder.iterdir() if path.name != "results.jsonl"}
    return [lines, files]


def training(folder: Path) -> None:
    """Four steps with a checkpoint after each second, then the model and the curve."""
    data = folder.parent / "corpus.txt"
    if not data.exists():
        words = np.random.default_rng(0).choice(["the", "cat", "sat", "on", "a", "mat"], (40, 12))
        data.write_text("\n<|endoftext|>\n".join(" ".join(row) for row in words))
    recipe = Recipe(
        "tiny",
        TextData(str(data), str(data), vocabulary=258, length=8),
        Model(layers=1, width=16, heads=2, mlp=16, context=8),
        Training(steps=4, batch=2, warmup=1, every=1, evaluate=2, save=2),
    )
    trainer = Trainer(recipe, folder)
    trainer.train()
    trainer.publish()
    loss_curve(folder)


def trained(folder: Path) -> Any:
    log = [
        [line["step"], line["loss"], line.get("validation")]
        for line in read_lines(folder / "log.jsonl")
    ]
    files = {path.name: sum_of(path) for path in (folder / "model").iterdir()}
    return [log, json.loads((folder / "recipe.json").read_text()), files, names(folder)]


def names(folder: Path) -> list[str]:
    """Nothing may be left over."""
    return sorted(path.name for path in folder.iterdir())


def sums(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): sum_of(path) for path in files}


def sum_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


JOBS = {
    "convert": Job(conversion, converted),
    "export": Job(exporting, exported),
    "generate": Job(generation, generated),
    "eval": Job(evaluation, evaluated),
    "experiment": Job(experiment, experimented),
    "train": Job(training, trained),
}
