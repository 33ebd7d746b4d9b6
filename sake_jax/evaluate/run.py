"""Draws samples for a task's problems, has them judged, and writes each down at once."""

import contextlib
import dataclasses
import warnings
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

import sake_jax as sj
from sake_jax.checks import require, whole
from sake_jax.evaluate.results import Results, read_results, read_written
from sake_jax.evaluate.task import Problem, Task
from sake_jax.generation import (
    chat_prompts,
    describe_settings,
    divide_work,
    encode_prompts,
    fit_prompt,
    model_identity,
    prompt_context,
    prompt_room,
)
from sake_jax.journal import Journal, Line
from sake_jax.models import LanguageModel
from sake_jax.progress import bar
from sake_jax.samplers import Sampler
from sake_jax.sharding import gather_from_all


@dataclasses.dataclass(frozen=True)
class Shard:
    """Which of the problems are this process's: every `of`-th, from `index` on."""

    index: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        whole("the number of shards", self.of)
        whole("a shard's index", self.index, at_least=0, at_most=self.of - 1)

    @property
    def file(self) -> str:
        """Its results, beside those of the others."""
        return "results.jsonl" if self.of == 1 else f"results-{self.index}-of-{self.of}.jsonl"


ALL = Shard()


@dataclasses.dataclass(frozen=True)
class EncodedProblem:
    """A problem as the model reads it."""

    problem: Problem
    place: int
    """In the task: its random keys belong to it."""
    ids: list[int]
    cut: int
    """Tokens that its beginning lost to the model's context."""


def run(
    lm: LanguageModel,
    sampler: Sampler,
    task: Task,
    folder: str | Path,
    *,
    samples: int = 1,
    seed: int = 0,
    batch: int = 32,
    chat: bool = False,
    shard: Shard = ALL,
    about: dict[str, Any] | None = None,
    progress: bool = False,
) -> Results:
    """Evaluates a model on a task; a run that was stopped goes on with the same samples.

    A sample belongs to its problem, its number and the seed: neither `batch` nor `shard` nor an
    interruption changes it. What any shard has written is not drawn again, so that a run may go on
    in other shards. Programs of one chunk are judged while the next one is drawn.

    In a run of several processes (`sake_jax.sharding`) all must call this alike. They divide the
    problems, or compute each sample together where the model is spread over their devices.
    Process 0 judges and writes; the others need not see the folder.

    Args:
      lm: the model.
      sampler: made for it.
      task: what is asked, and how answers are judged.
      folder: for settings.json and results.jsonl; shards of one run share it.
      samples: of each problem.
      seed: of the run.
      batch: rows that are drawn together, at most.
      chat: whether prompts are turns of a chat, by the model's template.
      shard: which problems are this process's.
      about: words on the run for reports, such as its request and its preset.
      progress: shows a bar on the standard error stream.
    """
    samples = whole("samples", samples)
    settings = _settings(lm, sampler, task, samples, seed, chat, about or {})
    work = divide_work(lm, divided=True)
    if work.together:
        _require_same_problems(settings)
    journal = Journal(folder, settings, shard.file) if work.writes else None
    done = work.broadcast_from_leader(lambda: _done(journal))
    places = [
        place
        for place, problem in enumerate(task.problems)
        if place % shard.of == shard.index
        and any((problem.name, at) not in done for at in range(samples))
    ]
    encoded = _encode(lm, sampler.plan.length, task, places, chat) if places else []
    _warn_of_cuts(lm, encoded)
    options: dict[str, Any] = {"key": jax.random.key(seed), "samples": samples, "stop": task.stop}
    options |= {"batch": batch, "divided": True}
    waiting: Future[list[Line]] | None = None
    bar_of_rows = bar(task.name, len(encoded) * samples, progress and work.writes)
    writing = journal or contextlib.nullcontext()
    with writing, bar_of_rows as advance, ThreadPoolExecutor(1) as judge:
        try:
            for chunk in _chunks(encoded, work.count * max(1, batch // samples)):
                lines = _draw(lm, sampler, chunk, options)
                if journal is None:
                    continue
                if waiting is not None:
                    journal.append(_new(waiting.result(), done))
                waiting = judge.submit(_judge, task, chunk, lines)
                advance(len(lines))
        finally:  # what was drawn is not lost to an interruption
            if journal is not None and waiting is not None:
                journal.append(_new(waiting.result(), done))
    return work.broadcast_from_leader(lambda: read_results(folder))


def _done(journal: Journal | None) -> set[tuple[str, int]]:
    """(problem, sample) of what any shard has written."""
    assert journal is not None
    return {(line["problem"], line["sample"]) for line in read_written(journal.folder)}


def _require_same_problems(settings: dict[str, Any]) -> None:
    sums = gather_from_all(settings["task"]["checksum"])
    rule = "all processes must have the same problems"
    require(len(set(sums)) == 1, rule, f"checksums {sums}", "give each the same file")


def _settings(
    lm: LanguageModel,
    sampler: Sampler,
    task: Task,
    samples: int,
    seed: int,
    chat: bool,
    about: dict[str, Any],
) -> dict[str, Any]:
    prompts = "\0".join(f"{problem.name}\0{problem.prompt}" for problem in task.problems)
    about_task = {"name": task.name, "problems": len(task.problems), "rules": list(task.rules)}
    return {
        "task": about_task | {"checksum": zlib.crc32(prompts.encode()), "stop": list(task.stop)},
        "samples": samples,
        "seed": whole("seed", seed, at_least=0),
        "chat": chat,
        "about": about,
        "model": model_identity(lm),
        "sampler": describe_settings(sampler, "sampler"),
        "versions": {name: version(name) for name in ("sake-jax", "jax", "flax")},
    }


def _encode(
    lm: LanguageModel, length: int, task: Task, places: Sequence[int], chat: bool
) -> list[EncodedProblem]:
    """The problems at these places as token ids; those too long lose their beginnings."""
    texts = [task.problems[place].prompt for place in places]
    encoded = []
    prompts = encode_prompts(lm, chat_prompts(lm, texts) if chat else texts)
    for place, ids in zip(places, prompts, strict=True):
        kept = fit_prompt(ids, length, prompt_context(lm), truncate=True, remedy="lower length")
        cut = len(ids) - len(kept)
        encoded.append(EncodedProblem(task.problems[place], place, kept, cut=cut))
    return encoded


def _warn_of_cuts(lm: LanguageModel, encoded: Sequence[EncodedProblem]) -> None:
    cut = sum(each.cut > 0 for each in encoded)
    if cut:
        context = lm.config.network.context
        longer = f"{cut} of {len(encoded)} prompts are longer than the model's context of {context}"
        warnings.warn(f"{longer}: they lose their beginnings.", stacklevel=3)


def _chunks(encoded: Sequence[EncodedProblem], size: int) -> Iterator[list[EncodedProblem]]:
    """Problems that are drawn together: of one width, so that few programs are compiled."""
    rooms: dict[int, list[EncodedProblem]] = {}
    for each in encoded:
        rooms.setdefault(prompt_room(len(each.ids)), []).append(each)
    for members in rooms.values():
        yield from (members[at : at + size] for at in range(0, len(members), size))


def _draw(
    lm: LanguageModel, sampler: Sampler, chunk: Sequence[EncodedProblem], options: dict[str, Any]
) -> list[Line]:
    out = sj.generate(
        lm,
        sampler,
        [each.ids for each in chunk],
        names=[each.place for each in chunk],
        **options,
    )
    return [
        {
            "problem": chunk[row.prompt].problem.name,
            "place": chunk[row.prompt].place,
            "sample": row.sample,
            "text": row.text,
            "ended": row.ended,
            "evaluations": row.steps,
            "cut": chunk[row.prompt].cut,
        }
        for row in out.rows
    ]


def _judge(task: Task, chunk: Sequence[EncodedProblem], lines: list[Line]) -> list[Line]:
    problems = {each.problem.name: each.problem for each in chunk}
    pairs = [(problems[line["problem"]], line["text"] or "") for line in lines]
    verdicts = task.judge(pairs)
    return [
        line | dataclasses.asdict(verdict) for line, verdict in zip(lines, verdicts, strict=True)
    ]


def _new(lines: list[Line], done: set[tuple[str, int]]) -> list[Line]:
    """Without those that an earlier, interrupted run has written."""
    return [line for line in lines if (line["problem"], line["sample"]) not in done]
