"""Votes by hand, by brute force over subsets, and of voters with a known chance to be right."""

import itertools
import math

import numpy as np
import pytest

from sake_jax.metrics.votes import INVALID, majority, self_consistency


@pytest.mark.parametrize(
    ("answers", "vote"),
    [
        (["7"], "7"),
        (["7", "9", "9"], "9"),
        (["9", "7", "7", "9"], "9"),
        (["7", "9", "9", "7"], "7"),
        ([INVALID, INVALID, "3"], "3"),
        ([INVALID, INVALID], INVALID),
        ([INVALID, "3", "4", INVALID, "4"], "4"),
    ],
)
def test_majority(answers, vote):
    assert majority(answers) == vote


def test_what_stands_for_no_answer_can_be_chosen():
    assert majority(["none", "none", "3"], invalid="none") == "3"
    assert majority(["none", "none", "3"]) == "none"
    answers, right = [["none", "none", "3"]], lambda problem, answer: answer == "3"
    assert self_consistency(answers, right, 3).first.value == 0
    assert self_consistency(answers, right, 3, invalid="none").first.value == 1


def random_answers(problems: int, samples: int) -> list[list[str]]:
    random = np.random.default_rng(0)
    kinds = ["1", "2", "3", INVALID]
    return [list(random.choice(kinds, samples, p=[0.4, 0.2, 0.2, 0.2])) for _ in range(problems)]


def test_subsets_are_all_of_them_where_they_are_few():
    answers = random_answers(20, 6)
    found = self_consistency(answers, lambda problem, answer: answer == "1", 3)
    votes = [[majority(some) == "1" for some in itertools.combinations(row, 3)] for row in answers]
    assert found.subsets.value == pytest.approx(np.mean(votes))
    assert found.first.value == np.mean([majority(row[:3]) == "1" for row in answers])


def test_random_subsets_come_near_to_all_of_them():
    answers = random_answers(50, 8)
    right = lambda problem, answer: answer == "1"  # noqa: E731
    every = self_consistency(answers, right, 4).subsets.value
    some = self_consistency(answers, right, 4, subsets=40).subsets.value
    assert some != every
    assert some == pytest.approx(every, abs=0.05)
    assert self_consistency(answers, right, 4, subsets=40, seed=1).subsets.value != some


def test_problems_have_their_own_answers_and_numbers_of_samples():
    answers = [["1", "1", "5"], ["2", "5", "2", "2"]]
    found = self_consistency(answers, lambda problem, answer: answer == str(problem + 1), 3)
    assert found.first.value == found.subsets.value == 1
    alone = self_consistency(answers, lambda problem, answer: answer == str(problem + 1), 1)
    assert alone.first.value == 1
    assert alone.subsets.value == pytest.approx((2 / 3 + 3 / 4) / 2)


def test_voters_of_a_known_chance():
    """Two answers, right with probability p: the vote of five is right by the binomial law."""
    random, p = np.random.default_rng(0), 0.65
    answers = np.where(random.random((600, 12)) < p, "yes", "no").tolist()
    truth = sum(math.comb(5, right) * p**right * (1 - p) ** (5 - right) for right in (3, 4, 5))
    found = self_consistency(answers, lambda problem, answer: answer == "yes", 5)
    for one in found:
        assert one.low < truth < one.high
    width = lambda one: one.high - one.low  # noqa: E731
    assert width(found.subsets) < width(found.first)


def test_intervals_have_options():
    answers = random_answers(30, 5)
    right = lambda problem, answer: answer == "1"  # noqa: E731
    usual = self_consistency(answers, right, 3)
    narrow = self_consistency(answers, right, 3, level=0.5)
    assert narrow.first.low > usual.first.low
    assert narrow.first.value == usual.first.value
    assert self_consistency(answers, right, 3, draws=20) != usual


def test_what_cannot_vote():
    with pytest.raises(ValueError, match="draw more, or lower n"):
        self_consistency([["1", "2"], ["1"]], lambda problem, answer: True, 2)
    with pytest.raises(ValueError, match="at least one"):
        majority([])
    with pytest.raises(ValueError, match="must be a list"):
        majority("12")
