"""What a model is asked, and what its answers are worth."""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from sake_jax.checks import require
from sake_jax.evaluate.sandbox import Outcome

TESTS = "tests"
"""The rule of tasks whose answers are programs: they pass their tests."""


Execute = Callable[[Sequence[str]], list[Outcome]]
"""Runs programs, such as `run_programs`."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that a model is asked."""

    name: str
    """Unlike those of all other problems of the task."""
    prompt: str
    """What the model writes on from, few-shot examples included."""
    data: dict[str, Any]
    """The record it was made of."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What an answer is worth, by each of the task's rules."""

    correct: dict[str, bool]
    answer: dict[str, str]
    """What was judged: the code that ran, or the number that was found in the text."""
    why: str
    """What is wrong, in a few words; empty where nothing is."""


Judge = Callable[[Sequence[tuple[Problem, str]]], list[Verdict]]
"""Judges completions, each of a problem: all at once, for programs run side by side."""


@dataclasses.dataclass(frozen=True)
class Task:
    """Problems, and how completions of their prompts are judged."""

    name: str
    problems: tuple[Problem, ...]
    stop: tuple[str, ...]
    """Strings that end a completion. The judge cuts there again, so that completions which were
    not cut are worth the same."""
    rules: tuple[str, ...]
    """By which answers are right or wrong; none for questions without right answers."""
    judge: Judge
    length: int | None = None
    """Tokens of an answer, where all have as many."""

    def __post_init__(self):
        names = collections.Counter(problem.name for problem in self.problems)
        require(names, "a task must have problems", "none", "check the file, and which are asked")
        twice = [name for name, count in names.items() if count > 1]
        require(not twice, "problems must have different names", twice, "leave out the copies")


def cut(text: str, stop: Sequence[str]) -> str:
    """The text before the first of the stop strings."""
    return text[: min((text.find(end) for end in stop if end in text), default=len(text))]


def by_tests(
    program: Callable[[Problem, str], str], stop: Sequence[str], execute: Execute
) -> Judge:
    """A judge that runs a program made of each problem and its completion."""

    def judge(answers: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        codes = [cut(text, stop) for _, text in answers]
        pairs = zip(answers, codes, strict=True)
        outcomes = execute([program(problem, code) for (problem, _), code in pairs])
        return [
            Verdict({TESTS: ran.passed}, {TESTS: code}, "" if ran.passed else ran.why)
            for code, ran in zip(codes, outcomes, strict=True)
        ]

    return judge
