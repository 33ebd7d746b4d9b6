"""Puzzles made by code, for small models: questions of one form, answers verified exactly.

>>> task = puzzle("countdown-3", limit=2)
>>> task.problems[0].prompt.split()[-1], task.length
(':', 8)
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from sake_jax.checks import one_of, whole
from sake_jax.evaluate.countdown import Countdown
from sake_jax.evaluate.products import Products
from sake_jax.evaluate.task import Problem, Task, Verdict

RIGHT = "right"
"""The one rule: an answer is right, or it is not."""
USUAL = 200
"""Problems, unless more or fewer are asked."""


@runtime_checkable
class Game(Protocol):
    """What makes questions, and knows whether an answer is right."""

    @property
    def answer_words(self) -> int:
        """How many words an answer has."""
        ...

    def questions(self, split: str, count: int, seed: int = 0) -> list[str]:
        """Different prompts of a split."""
        ...

    def check(self, prompt: str, answer: str) -> tuple[str, str]:
        """What is wrong with an answer, "" if nothing is, and the answer as votes count it."""
        ...


GAMES: dict[str, Game] = {
    "countdown-3": Countdown(numbers=3, largest=24, largest_result=199),
    "countdown-4": Countdown(numbers=4, largest=10),
    "products": Products(digits=3),
}
"""By the name of the task, which is that of the model that was trained for it."""


def puzzle(
    name: str,
    *,
    split: str = "test",
    limit: int | None = None,
    seed: int = 0,
    game: Game | None = None,
) -> Task:
    """Problems made by code, which models never saw: splits share none.

    Args:
      name: one of `GAMES`, or any name for a game of your own.
      split: "test", or "development" to choose settings by.
      limit: how many problems, 200 by default.
      seed: another one asks other problems of the split.
      game: what makes the questions; the one of that name by default.
    """
    made = GAMES[one_of("puzzle", name, tuple(GAMES))] if game is None else game
    prompts = made.questions(split, whole("limit", USUAL if limit is None else limit), seed)
    problems = tuple(
        Problem(f"{name}/{at}", prompt, {"split": split, "seed": seed})
        for at, prompt in enumerate(prompts)
    )

    def judge(answers: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        checked = [made.check(problem.prompt, text) for problem, text in answers]
        return [Verdict({RIGHT: not fault}, {RIGHT: vote}, fault) for fault, vote in checked]

    return Task(name, problems, (), (RIGHT,), judge, length=made.answer_words)
