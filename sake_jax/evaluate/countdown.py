"""Countdown: reach a target with given numbers, each used exactly once.

Problems are made by code: numbers are drawn, combined at random, and what comes out is the target,
so that every problem has a solution. An answer writes one step after the other, in words of which
each is a token of a small model: ``x op y z`` says that x op y is z.

>>> game = Countdown(numbers=3, largest=9)
>>> game.prompt((2, 3, 4), 20)
'2 3 4 = 20 :'
>>> game.fault((2, 3, 4), 20, "2 + 3 5 5 * 4 20")
''
>>> game.fault((2, 3, 4), 20, "4 + 4 8 8 + 4 12")
'step 1 needs 4 twice'
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from sake_jax.checks import one_of, require, whole

OPERATORS = {"+": np.add, "-": np.subtract, "*": np.multiply}
SPLITS = ("train", "development", "test")
HELD_OUT = 16
"""Of that many problems one is for development, and one for the test."""
STEP_WORDS = 4
NO_ANSWER = "[invalid]"
"""What a text that is no answer votes for: nothing."""
LEAST_GAMES = 4096
"""Played at once: enough that a split without a single one of them is taken to be empty."""

Step = tuple[int, str, int, int]
"""x, operator, y, and what they make."""


@dataclasses.dataclass(frozen=True)
class Countdown:
    """The size of the game. Results, those of steps between included, are positive."""

    numbers: int = 3
    """How many are given."""
    largest: int = 12
    """Of the given numbers."""
    largest_result: int = 144
    """Of a step between; a target is never larger either."""
    lowest_target: int = 10
    highest_target: int = 99

    def __post_init__(self):
        whole("numbers", self.numbers, at_least=2, at_most=6)
        whole("largest", self.largest)
        whole("largest_result", self.largest_result, at_least=self.largest)
        whole("highest_target", self.highest_target, at_most=self.largest_result)
        whole("lowest_target", self.lowest_target, at_most=self.highest_target)

    @property
    def words(self) -> tuple[str, ...]:
        """Every word that prompts and answers are made of."""
        return (*OPERATORS, "=", ":", *map(str, range(1, self.largest_result + 1)))

    def prompt(self, numbers: Sequence[int], target: int) -> str:
        """The question as text."""
        return f"{' '.join(map(str, numbers))} = {target} :"

    def read_prompt(self, prompt: str) -> tuple[tuple[int, ...], int]:
        """The numbers and the target of a prompt."""
        *numbers, _, target, _ = prompt.split()
        return tuple(map(int, numbers)), int(target)

    def pairs(self, split: str, count: int, seed: int | Sequence[int] = 0) -> list[tuple[str, str]]:
        """Prompts with one answer each, of a split; a problem may come twice.

        The same seed gives the same pairs. Splits share no problem: which one a problem belongs to
        depends on its numbers, in any order, and its target.
        """
        one_of("split", split, SPLITS)
        random, kept = np.random.default_rng(seed), []
        while len(kept) < count:
            # About one game in twenty is of a held-out split and stays inside the bounds.
            numbers, steps, inside = self._games(random, max(2 * count, LEAST_GAMES))
            mine = split_of(numbers, steps[-1][3]) == SPLITS.index(split)
            (chosen,) = (inside & mine).nonzero()
            require(len(chosen), f"the {split} split must have problems", self, "raise largest")
            kept += [self._pair(numbers[at], [step[:, at] for step in steps]) for at in chosen]
        return kept[:count]

    def problems(self, split: str, count: int, seed: int = 0) -> list[tuple[tuple[int, ...], int]]:
        """Different problems of a split: numbers in the order of size, and the target."""
        chosen: dict[tuple[tuple[int, ...], int], None] = {}
        for chunk in itertools.count():
            before = len(chosen)
            for prompt, _ in self.pairs(split, 2 * count, (seed, chunk)):
                numbers, target = self.read_prompt(prompt)
                chosen[tuple(sorted(numbers)), target] = None
            if len(chosen) >= count:
                return list(chosen)[:count]
            rule = f"the {split} split must have {count} problems"
            require(len(chosen) > before, rule, len(chosen), "ask for fewer, or raise largest")
        raise AssertionError("unreachable")

    @property
    def answer_words(self) -> int:
        """Four for each step."""
        return STEP_WORDS * (self.numbers - 1)

    def questions(self, split: str, count: int, seed: int = 0) -> list[str]:
        """Different prompts of a split."""
        return [self.prompt(*problem) for problem in self.problems(split, count, seed)]

    def check(self, prompt: str, answer: str) -> tuple[str, str]:
        """What is wrong with an answer, "" if nothing is, and the answer up to commutation."""
        fault = self.fault(*self.read_prompt(prompt), answer)
        try:
            return fault, canonical(answer)
        except ValueError:
            return fault, NO_ANSWER

    def fault(self, numbers: Sequence[int], target: int, answer: str) -> str:
        """What is wrong with an answer, in a few words; empty if it is right.

        Right means: one step for all numbers but one, each step's arithmetic right, each number
        and each result used exactly once, and the last result is the target.
        """
        try:
            steps = read_steps(answer)
        except ValueError as error:
            return str(error)
        if len(steps) != len(numbers) - 1:
            return f"{len(steps)} steps for {len(numbers)} numbers"
        there = Counter(numbers)
        for at, (x, operator, y, z) in enumerate(steps, 1):
            for operand, times in Counter((x, y)).items():
                if there[operand] < times:
                    twice = " twice" if there[operand] else ", which is not there"
                    return f"step {at} needs {operand}{twice}"
            made = int(OPERATORS[operator](x, y))
            if made != z:
                return f"step {at}: {x} {operator} {y} is {made}, not {z}"
            there = there - Counter((x, y)) + Counter((z,))
        # With the right number of steps, and two taken for one given in each, one number is left.
        return "" if there[target] else f"ends at {steps[-1][3]}, not {target}"

    def solutions(self, numbers: Sequence[int], target: int) -> set[str]:
        """All right answers up to commutation, as `canonical` writes them."""
        right = (steps for steps in self._answers(tuple(numbers)) if steps[-1][3] == target)
        return {canonical(write_steps(steps)) for steps in right}

    def _answers(self, numbers: tuple[int, ...]) -> Iterator[list[Step]]:
        """Every way to combine the numbers, larger operands first, whatever comes out."""
        for i, j in itertools.combinations(range(len(numbers)), 2):
            y, x = sorted((numbers[i], numbers[j]))
            rest = tuple(n for at, n in enumerate(numbers) if at not in (i, j))
            for operator, function in OPERATORS.items():
                z = int(function(x, y))
                if not 1 <= z <= self.largest_result:
                    continue
                step = (x, operator, y, z)
                if not rest:
                    yield [step]
                else:
                    yield from ([step, *later] for later in self._answers((z, *rest)))

    def _games(
        self, random: np.random.Generator, count: int
    ) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
        """Games played at random, all at once: (count, numbers), (4, count) of each step with the
        operator's place, and (count,) which of them stayed inside the bounds."""
        numbers = random.integers(1, self.largest + 1, (count, self.numbers))
        left, steps, inside = numbers, [], np.ones(count, bool)
        for _ in range(self.numbers - 1):
            left = random.permuted(left, axis=1)
            x, y = left[:, 0], left[:, 1]
            operator = random.integers(0, len(OPERATORS), count)
            # A difference takes the smaller from the larger; sums and products keep their order.
            swap = (operator == list(OPERATORS).index("-")) & (x < y)
            x, y = np.where(swap, y, x), np.where(swap, x, y)
            z = np.choose(operator, [function(x, y) for function in OPERATORS.values()])
            inside &= (z >= 1) & (z <= self.largest_result)
            steps.append(np.stack([x, operator, y, z]))
            left = np.concatenate([z[:, None], left[:, 2:]], axis=1)
        inside &= (left[:, 0] >= self.lowest_target) & (left[:, 0] <= self.highest_target)
        return numbers, steps, inside

    def _pair(self, numbers: np.ndarray, steps: list[np.ndarray]) -> tuple[str, str]:
        signs = tuple(OPERATORS)
        written = [(int(x), signs[operator], int(y), int(z)) for x, operator, y, z in steps]
        return self.prompt(numbers.tolist(), written[-1][3]), write_steps(written)


def split_of(numbers: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(N,) the place in `SPLITS` of problems with (N, n) numbers and (N,) targets.

    A hash decides, so that a problem's split needs no list of all problems.
    """
    mixed = target.astype(np.uint64)
    for column in np.sort(numbers, axis=1).T:
        # Knuth's multiplier for linear congruences modulo 2^64: wraps around, as it should.
        mixed = mixed * np.uint64(6364136223846793005) + column.astype(np.uint64) + np.uint64(1)
        mixed = mixed ^ (mixed >> np.uint64(29))
    place = (mixed % np.uint64(HELD_OUT)).astype(int)
    return np.where(place < 2, place + 1, 0)


def read_steps(answer: str) -> list[Step]:
    """The steps of an answer; a ValueError says what is not a step."""
    words = answer.split()
    if not words or len(words) % STEP_WORDS:
        raise ValueError(f"{len(words)} words are no whole number of steps")
    groups = [words[at : at + STEP_WORDS] for at in range(0, len(words), STEP_WORDS)]
    return [_step(at, *group) for at, group in enumerate(groups, 1)]


def _step(at: int, x: str, operator: str, y: str, z: str) -> Step:
    positive = all(n.isascii() and n.isdigit() and not n.startswith("0") for n in (x, y, z))
    if not positive or operator not in OPERATORS:
        raise ValueError(f"step {at} is '{x} {operator} {y} {z}'")
    return int(x), operator, int(y), int(z)


def write_steps(steps: Sequence[Step]) -> str:
    """Steps as an answer."""
    return " ".join(f"{x} {operator} {y} {z}" for x, operator, y, z in steps)


def canonical(answer: str) -> str:
    """One way to write all answers that differ in the order of operands or of steps only.

    >>> canonical("2 + 3 5 5 * 4 20") == canonical("3 + 2 5 4 * 5 20")
    True
    """
    steps = [
        (max(x, y), operator, min(x, y), z) if operator != "-" else (x, operator, y, z)
        for x, operator, y, z in read_steps(answer)
    ]
    return ", ".join(write_steps([step]) for step in sorted(steps))
