"""Products with the chain written out: one answer, so that samples can vote.

A number of several digits times one of two. The answer writes the product with the last digit,
the product with the first, and their sum in its place, every digit a word, with zeros in front.

>>> game = Products(digits=3)
>>> game.prompt(347, 26)
'3 4 7 * 2 6 :'
>>> game.answer(347, 26)  # 347 * 6, 347 * 2, 347 * 26
'2 0 8 2 0 6 9 4 0 9 0 2 2'
>>> game.check("3 4 7 * 2 6 :", "2 0 8 2 0 6 9 4 0 9 0 2 1")
('347 * 26 is 9022, not 9021', '9021')
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sake_jax.checks import one_of, require, whole
from sake_jax.evaluate.countdown import NO_ANSWER, SPLITS, split_of


@dataclasses.dataclass(frozen=True)
class Products:
    """The size of the numbers."""

    digits: int = 3
    """Of the first number; the second has two."""

    def __post_init__(self):
        whole("digits", self.digits, at_least=2, at_most=8)

    @property
    def words(self) -> tuple[str, ...]:
        """Every word that prompts and answers are made of."""
        return (*map(str, range(10)), "*", ":")

    @property
    def answer_words(self) -> int:
        """Two products of one digit more than the first number, their sum of two more."""
        return 2 * (self.digits + 1) + self.digits + 2

    def prompt(self, x: int, y: int) -> str:
        """The question as text."""
        return f"{_digits(x, self.digits)} * {_digits(y, 2)} :"

    def answer(self, x: int, y: int) -> str:
        """The chain, and the product at its end."""
        parts = [_digits(x * digit, self.digits + 1) for digit in (y % 10, y // 10)]
        return " ".join([*parts, _digits(x * y, self.digits + 2)])

    def pairs(self, split: str, count: int, seed: int | Sequence[int] = 0) -> list[tuple[str, str]]:
        """Prompts with their answers, of a split; a problem may come twice.

        The same seed gives the same pairs. Splits share no problem.
        """
        return [(self.prompt(x, y), self.answer(x, y)) for x, y in self._drawn(split, count, seed)]

    def questions(self, split: str, count: int, seed: int = 0) -> list[str]:
        """Different prompts of a split."""
        chosen = dict.fromkeys(self._drawn(split, 4 * count, seed))
        rule = f"the {split} split must have {count} problems"
        require(len(chosen) >= count, rule, len(chosen), "ask for fewer, or raise digits")
        return [self.prompt(x, y) for x, y in list(chosen)[:count]]

    def check(self, prompt: str, answer: str) -> tuple[str, str]:
        """What is wrong with an answer, "" if nothing is, and the product it names.

        The last digits are the answer, whatever the chain before them says; but there must be
        nothing else than digits, and as many as there should be.
        """
        x, y = (int(part.replace(" ", "")) for part in prompt.rstrip(" :").split("*"))
        words = answer.split()
        if len(words) != self.answer_words:
            return f"{len(words)} words, not {self.answer_words}", NO_ANSWER
        if not all(len(word) == 1 and word in "0123456789" for word in words):
            return "not all words are digits", NO_ANSWER
        named = int("".join(words[-(self.digits + 2) :]))
        return ("" if named == x * y else f"{x} * {y} is {x * y}, not {named}"), str(named)

    def _drawn(self, split: str, count: int, seed: int | Sequence[int]) -> list[tuple[int, int]]:
        one_of("split", split, SPLITS)
        random, kept = np.random.default_rng(seed), []
        while len(kept) < count:
            x = random.integers(10 ** (self.digits - 1), 10**self.digits, 16 * count)
            y = random.integers(10, 100, x.size)
            mine = split_of(x[:, None], y) == SPLITS.index(split)
            kept += list(zip(x[mine].tolist(), y[mine].tolist(), strict=True))
        return kept[:count]


def _digits(number: int, width: int) -> str:
    return " ".join(f"{number:0{width}d}")
