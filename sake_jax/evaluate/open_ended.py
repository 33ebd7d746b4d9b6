"""Stories to continue and questions with many answers: nothing is right or wrong here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sake_jax.checks import require
from sake_jax.evaluate.data import Record, records
from sake_jax.evaluate.task import Problem, Task, Verdict

NAMES = ("id", "task_id", "question_id", "name")
"""Fields that may name a record."""


def open_ended(
    data: str | Path,
    *,
    name: str = "open-ended",
    field: str = "prompt",
    stop: Sequence[str] = (),
    limit: int | None = None,
) -> Task:
    """Prompts from a file, whose completions are measured and not judged.

    Args:
      data: a file of prompts: .txt with one in each line, .yaml or .json with a list of them, or
        .jsonl of records. In records the prompt is in `field`.
      name: of the task.
      field: with the prompt. Of a list of turns, the first is the prompt.
      stop: strings that end a completion.
      limit: takes the first that many prompts.
    """
    require(not isinstance(stop, str), "stop must be a list of strings", stop, "put it in a list")
    prompts = records(data, (field,), text=field, limit=limit)
    problems = tuple(
        Problem(_name(record, at), _prompt(record, field), record)
        for at, record in enumerate(prompts)
    )
    return Task(name, problems, tuple(stop), (), judge)


def judge(answers: Sequence[tuple[Problem, str]]) -> list[Verdict]:
    """Says nothing of each completion."""
    return [Verdict({}, {}, "") for _ in answers]


def _name(record: Record, at: int) -> str:
    named = next((record[field] for field in NAMES if field in record), f"prompt/{at}")
    return str(named)


def _prompt(record: Record, field: str) -> str:
    prompt: Any = record[field]
    first: Any = prompt[0] if isinstance(prompt, list) and prompt else prompt
    rule = f"the field {field!r} must hold a text"
    require(isinstance(first, str), rule, prompt, "name another field")
    return first
