"""GSM8K (Cobbe et al. 2021): word problems with a number for an answer, with 5 examples."""

import random
import re
from collections.abc import Sequence
from pathlib import Path

from sake_jax.checks import require, whole
from sake_jax.evaluate.data import Hub, Record, records
from sake_jax.evaluate.task import Problem, Task, Verdict, cut

HUB = Hub("openai/gsm8k", "main", "test")
FIELDS = ("question", "answer")
STOP = ("Question:", "</s>", "<|im_end|>")
STRICT, FLEXIBLE = "strict-match", "flexible-extract"
INVALID = "[invalid]"
"""The answer of a text in which no number was found."""
MARKED = re.compile(r"#### (\-?[0-9\.\,]+)")
"""The number after ####, as the examples end."""
NUMBER = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
"""Anything like a number."""
IGNORED = tuple(map(re.compile, (",", r"\$", r"(?s).*#### ", r"\.$")))
"""What is taken out of answers, in this order, before they are compared."""
SEED = 1234
"""With which lm-evaluation-harness draws examples unless told otherwise."""


def gsm8k(
    data: str | Path | None = None,
    *,
    examples: str | Path | None = None,
    shots: int = 5,
    seed: int = SEED,
    limit: int | None = None,
) -> Task:
    """Prompts, stop strings and rules of lm-evaluation-harness's `gsm8k`.

    Every problem has its own examples. They are drawn from the training set problem after
    problem, as the harness does with this seed on one process: the prompts are the same.

    Args:
      data: a file of questions and answers; the hub's test split by default.
      examples: the training set; the hub's by default, if the problems are the hub's too.
      shots: how many examples each prompt shows.
      seed: of the choice of examples.
      limit: takes the first that many problems.
    """
    questions = records(data, FIELDS, hub=HUB, limit=limit)
    shots = whole("shots", shots, at_least=0)
    before = _few_shots(_pool(data, examples, shots), shots, seed, len(questions))
    problems = tuple(
        Problem(f"GSM8K/{at}", examples_text + _question(record), record)
        for at, (examples_text, record) in enumerate(zip(before, questions, strict=True))
    )
    return Task("gsm8k", problems, STOP, (STRICT, FLEXIBLE), judge)


def judge(answers: Sequence[tuple[Problem, str]]) -> list[Verdict]:
    """Looks for a number in each completion by both rules, and compares it."""
    return [_verdict(problem, cut(text, STOP)) for problem, text in answers]


def strict_match(text: str) -> str:
    """The first number after "#### "."""
    match = MARKED.search(text)
    return match.group(1) if match else INVALID


def flexible_extract(text: str) -> str:
    """The last of anything like a number, dollars, commas and dots included."""
    return next(reversed(NUMBER.findall(text)), INVALID)


def normalised(answer: str) -> str:
    """An answer as it is compared: without commas, dollars, all before "#### ", a last dot."""
    for pattern in IGNORED:
        answer = pattern.sub("", answer)
    return answer.lower()


def matches(answer: str, reference: str) -> bool:
    """Whether an answer is right. They are compared as text: 18.0 is not 18."""
    return normalised(answer) == normalised(reference)


def _verdict(problem: Problem, text: str) -> Verdict:
    answers = {STRICT: strict_match(text), FLEXIBLE: flexible_extract(text)}
    reference = problem.data["answer"]
    correct = {rule: matches(answer, reference) for rule, answer in answers.items()}
    right = normalised(reference)
    return Verdict(correct, answers, "" if all(correct.values()) else f"the answer is {right}")


def _pool(data: str | Path | None, examples: str | Path | None, shots: int) -> list[Record]:
    if not shots:
        return []
    rule = "examples must be the training set"
    remedy = "name its file with --examples, or show none with --shots 0"
    require(data is None or examples is not None, rule, examples, remedy)
    pool = records(examples, FIELDS, hub=HUB._replace(split="train"))
    rule = "the training set must have as many records as shots"
    remedy = f"lower the {shots} of --shots"
    require(len(pool) >= shots, rule, len(pool), remedy)
    return pool


def _few_shots(pool: Sequence[Record], shots: int, seed: int, problems: int) -> list[str]:
    """The examples of each problem, drawn one problem after the other."""
    draw, places = random.Random(seed), range(len(pool))
    chosen = [draw.sample(places, shots) for _ in range(problems)]
    return ["".join(_example(pool[at]) for at in some) for some in chosen]


def _example(record: Record) -> str:
    return f"{_question(record)} {record['answer']}\n\n"


def _question(record: Record) -> str:
    return f"Question: {record['question']}\nAnswer:"
