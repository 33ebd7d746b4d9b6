"""MBPP (Austin et al. 2021): 500 Python functions from a sentence and tests, with 3 examples."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sake_jax.checks import require, whole
from sake_jax.evaluate.data import Hub, Record, records
from sake_jax.evaluate.sandbox import run_programs
from sake_jax.evaluate.task import TESTS, Execute, Problem, Task, by_tests

HUB = Hub("google-research-datasets/mbpp", "full", "test")
FIELDS = ("task_id", "code", "test_list")
"""Of all records; what is asked is `text`, or `prompt` in the sanitized edition."""
STOP = ("[DONE]",)
TEST = range(11, 511)
"""The task_ids of the test split."""
EXAMPLES = (2, 3, 4)
"""The task_ids of the examples, in the order they are shown."""


def mbpp(
    data: str | Path | None = None,
    *,
    examples: str | Path | None = None,
    shots: int = 3,
    ids: Sequence[int] = TEST,
    setup: bool = True,
    limit: int | None = None,
    execute: Execute = run_programs,
) -> Task:
    """Prompts, stop strings and programs of lm-evaluation-harness's `mbpp`.

    Args:
      data: a file in the format of mbpp.jsonl, or the sanitized edition, sanitized-mbpp.json; the
        hub's test split by default.
      examples: the file with the examples, task_ids 2, 3 and 4; by default they are looked for
        in `data`, or come from the hub if the problems do.
      shots: how many of them are shown.
      ids: the task_ids that are asked, of those in `data`.
      setup: runs a problem's own `test_setup_code` before its tests. Problem 367 cannot be solved
        without. False leaves it out, as the harness does.
      limit: takes the first that many problems.
      execute: runs the programs.
    """
    shots = whole("shots", shots, at_least=0, at_most=len(EXAMPLES))
    tasks = [record for record in _records(data, HUB) if record["task_id"] in ids]
    tasks = tasks[: None if limit is None else whole("limit", limit)]
    source = data if examples is None else examples
    shown = "".join(_example(record) for record in _examples(source, shots))
    problems = tuple(
        Problem(f"MBPP/{record['task_id']}", shown + _question(record), record) for record in tasks
    )
    judge = by_tests(partial(program, setup=setup), STOP, execute)
    return Task("mbpp", problems, STOP, (TESTS,), judge)


def program(problem: Problem, completion: str, setup: bool = True) -> str:
    """The completion and its tests."""
    before = problem.data.get("test_setup_code") if setup else None
    parts = [completion, *([before] if before else []), *_tests(problem.data)]
    return "\n".join(parts)


def _records(source: str | Path | None, hub: Hub) -> list[Record]:
    """Records as the full edition has them; the sanitized one has other words for two fields."""
    every = []
    for record in records(source, FIELDS, hub=hub):
        rule = f"problem {record['task_id']} must say what is asked"
        asked = record.get("text") or record.get("prompt")
        require(asked, rule, list(record), "as 'text', or 'prompt' in the sanitized edition")
        setup = record.get("test_setup_code") or "\n".join(record.get("test_imports") or [])
        every.append(record | {"text": asked, "test_setup_code": setup})
    return every


def _examples(source: str | Path | None, shots: int) -> list[Record]:
    if not shots:
        return []
    known = {r["task_id"]: r for r in _records(source, HUB._replace(split="prompt"))}
    missing = [name for name in EXAMPLES[:shots] if name not in known]
    rule = f"examples must hold the task_ids {', '.join(map(str, EXAMPLES[:shots]))}"
    remedy = "name mbpp.jsonl with --examples, or show none with --shots 0"
    require(not missing, rule, f"a file without {missing}", remedy)
    return [known[name] for name in EXAMPLES[:shots]]


def _example(record: Record) -> str:
    return f"{_question(record)}{record['code']}\n[DONE]\n\n"


def _question(record: Record) -> str:
    asks = f"You are an expert Python programmer, and here is your task: {record['text']}"
    tests = "\n".join(_tests(record))
    return f"{asks} Your code should pass these tests:\n\n{tests}\n[BEGIN]\n"


def _tests(record: Record) -> list[str]:
    """The first three: what is shown is what is run."""
    tests = record["test_list"][:3]
    rule = f"problem {record['task_id']} must have three tests in test_list"
    require(len(tests) == 3, rule, len(tests), "add tests, or leave it out of ids")
    return tests
