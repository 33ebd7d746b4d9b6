"""Countdown: problems that have answers, splits that share none, a verifier that is strict."""

import itertools
from collections import Counter

import numpy as np
import pytest

from sake_jax.evaluate.countdown import (
    OPERATORS,
    SPLITS,
    Countdown,
    canonical,
    read_steps,
    split_of,
)

GAMES = [Countdown(), Countdown(numbers=4, largest=9, largest_result=99)]


@pytest.mark.parametrize("game", GAMES)
def test_every_pair_is_a_problem_with_a_right_answer(game):
    for split in SPLITS:
        for prompt, answer in game.pairs(split, 200, seed=3):
            numbers, target = game.read_prompt(prompt)
            assert game.prompt(numbers, target) == prompt
            assert len(numbers) == game.numbers
            assert max(numbers) <= game.largest
            assert game.lowest_target <= target <= game.highest_target
            assert game.fault(numbers, target, answer) == ""
            assert max(z for *_, z in read_steps(answer)) <= game.largest_result
            assert set(prompt.split()) | set(answer.split()) <= set(game.words)


@pytest.mark.parametrize("game", GAMES)
def test_splits_share_no_problem_in_any_order_of_numbers(game):
    sets = {}
    for split in SPLITS:
        problems = game.problems(split, 100)
        assert len(set(problems)) == 100
        drawn = [game.read_prompt(prompt) for prompt, _ in game.pairs(split, 2000, seed=1)]
        sets[split] = {(tuple(sorted(numbers)), target) for numbers, target in drawn}
        sets[split] |= set(problems)
    for one, other in itertools.combinations(SPLITS, 2):
        assert not sets[one] & sets[other]
    numbers, target = np.array([[1, 2, 9], [9, 1, 2], [2, 9, 1]]), np.array([20, 20, 20])
    assert len(set(split_of(numbers, target))) == 1


def test_held_out_problems_are_an_eighth():
    numbers = np.random.default_rng(0).integers(1, 30, (20_000, 3))
    target = np.random.default_rng(1).integers(10, 99, 20_000)
    shares = np.bincount(split_of(numbers, target)) / 20_000
    np.testing.assert_allclose(shares, [14 / 16, 1 / 16, 1 / 16], atol=0.01)


def test_pairs_depend_on_the_seed_alone():
    game = GAMES[0]
    assert game.pairs("train", 50, seed=(1, 2)) == game.pairs("train", 50, seed=(1, 2))
    assert game.pairs("train", 50, seed=(1, 2)) != game.pairs("train", 50, seed=(1, 3))


def test_problems_run_out_with_an_error_that_says_so():
    with pytest.raises(ValueError, match="must have 1000 problems"):
        Countdown(numbers=2).problems("test", 1000)
    single = Countdown(numbers=2, largest=4, lowest_target=16, highest_target=16)
    with pytest.raises(ValueError, match="split must have problems"):
        [single.pairs(split, 1) for split in ("train", "development", "test")]


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("2 + 3 5 5 * 4 20", ""),
        ("4 * 5 20 2 + 3 5", "step 1 needs 5, which is not there"),
        ("2 + 3 5", "1 steps for 3 numbers"),
        ("2 + 3 6 6 * 4 24", "step 1: 2 + 3 is 5, not 6"),
        ("2 * 3 6 6 + 4 10", "ends at 10, not 20"),
        ("2 + 2 4 4 * 4 16", "step 1 needs 2 twice"),
        ("4 * 3 12 4 * 2 8", "step 2 needs 4, which is not there"),
        ("2 + 3 5 5 * 4", "7 words are no whole number of steps"),
        ("", "0 words are no whole number of steps"),
        ("2 / 3 5 5 * 4 20", "step 1 is '2 / 3 5'"),
        ("2 + 3 05 5 * 4 20", "step 1 is '2 + 3 05'"),
        ("2 - 3 -1 4 * 5 20", "step 1 is '2 - 3 -1'"),
        ("4 * 5 20 20 * 1 20", "step 1 needs 5, which is not there"),
    ],
)
def test_the_verifier_is_strict(answer, fault):
    assert Countdown().fault((2, 3, 4), 20, answer) == fault


def test_a_number_that_is_given_twice_may_be_used_twice():
    game = Countdown()
    assert game.fault((5, 5, 3), 28, "5 * 5 25 25 + 3 28") == ""
    assert game.fault((5, 4, 3), 28, "5 * 5 25 25 + 3 28") == "step 1 needs 5 twice"


def brute_force(game, numbers, target):
    """All right answers among all sequences of steps over numbers that may be written."""
    values, found = sorted({*numbers, *range(1, game.largest_result + 1)}), set()
    for x, y, first in itertools.product(set(numbers), set(numbers), OPERATORS):
        z = int(OPERATORS[first](x, y))
        left = Counter(numbers)
        left.subtract((x, y))
        if z not in values or min(left.values()) < 0:
            continue
        (other,) = left.elements()
        for (a, b), second in itertools.product(((z, other), (other, z)), OPERATORS):
            answer = f"{x} {first} {y} {z} {a} {second} {b} {int(OPERATORS[second](a, b))}"
            if game.fault(numbers, target, answer) == "":
                found.add(canonical(answer))
    return found


def test_solutions_are_all_that_there_are_up_to_commutation():
    game = Countdown(largest=9)
    several = 0
    for numbers, target in game.problems("test", 40):
        solutions = game.solutions(numbers, target)
        assert solutions == brute_force(game, numbers, target)
        assert solutions, "every problem has one"
        several += len(solutions) > 1
        for solution in solutions:
            assert canonical(solution.replace(",", "")) == solution
    assert several > 5, "diversity has something to find"


def test_answers_of_training_are_among_the_solutions():
    game = GAMES[1]
    for prompt, answer in game.pairs("development", 30):
        assert canonical(answer) in game.solutions(*game.read_prompt(prompt))


def test_bad_sizes():
    with pytest.raises(ValueError, match="numbers must be at least 2"):
        Countdown(numbers=1)
    with pytest.raises(ValueError, match="largest_result must be at least 12"):
        Countdown(largest_result=5)
    with pytest.raises(ValueError, match="lowest_target must be at most 99"):
        Countdown(lowest_target=100)
    with pytest.raises(ValueError, match="split must be one of"):
        Countdown().pairs("validation", 1)
