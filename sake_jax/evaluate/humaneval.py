"""HumanEval (Chen et al. 2021): 164 Python functions to complete, without examples."""

from pathlib import Path

from sake_jax.evaluate.data import Hub, records
from sake_jax.evaluate.sandbox import run_programs
from sake_jax.evaluate.task import TESTS, Execute, Problem, Task, by_tests

HUB = Hub("openai/openai_humaneval", None, "test")
FIELDS = ("task_id", "prompt", "entry_point", "test")
STOP = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
"""What begins something after the function."""


def humaneval(
    data: str | Path | None = None, *, limit: int | None = None, execute: Execute = run_programs
) -> Task:
    """Prompts, stop strings and programs of lm-evaluation-harness's `humaneval`.

    Args:
      data: a file in the format of HumanEval.jsonl; the hub's by default.
      limit: takes the first that many problems.
      execute: runs the programs.
    """
    tasks = records(data, FIELDS, hub=HUB, limit=limit)
    problems = tuple(Problem(record["task_id"], record["prompt"], record) for record in tasks)
    return Task("humaneval", problems, STOP, (TESTS,), by_tests(program, STOP, execute))


def program(problem: Problem, completion: str) -> str:
    """The function, its tests, and the call that runs them."""
    record = problem.data
    tests = f"{record['test']}\ncheck({record['entry_point']})"
    return f"{record['prompt']}{completion}\n{tests}"
