"""Tasks made by code: their questions, their verdicts, and the command that asks them."""

import itertools

import pytest

from sake_jax.evaluate import puzzle
from sake_jax.evaluate.countdown import SPLITS
from sake_jax.evaluate.products import Products
from sake_jax.evaluate.puzzles import GAMES, RIGHT, USUAL


@pytest.mark.parametrize("name", GAMES)
def test_answers_of_the_game_are_right_and_others_wrong(name):
    game = GAMES[name]
    # No two of the same numbers: an answer would serve both.
    pairs = list(
        {str(sorted(q.split())): (q, a) for q, a in game.pairs("test", 40, seed=2)}.values()
    )
    task = puzzle(name, limit=5)
    problems = [task.problems[0].__class__("any", prompt, {}) for prompt, _ in pairs]
    right = [answer for _, answer in pairs]
    assert {len(answer.split()) for answer in right} == {task.length}
    verdicts = task.judge(list(zip(problems, right, strict=True)))
    assert all(verdict.correct[RIGHT] and not verdict.why for verdict in verdicts)
    # The same answers to the next one's question.
    verdicts = task.judge(list(zip(problems, right[1:] + right[:1], strict=True)))
    assert not any(verdict.correct[RIGHT] for verdict in verdicts)
    assert all(verdict.why for verdict in verdicts)
    (verdict,) = task.judge([(problems[0], "no answer")])
    assert not verdict.correct[RIGHT]
    assert verdict.answer[RIGHT] == "[invalid]"


@pytest.mark.parametrize("name", GAMES)
def test_questions_are_those_of_a_split(name):
    sets = {split: {p.prompt for p in puzzle(name, split=split).problems} for split in SPLITS}
    assert all(len(prompts) == USUAL for prompts in sets.values())
    for one, other in itertools.combinations(SPLITS, 2):
        assert not sets[one] & sets[other]
    again = {problem.prompt for problem in puzzle(name, seed=1).problems}
    assert len(again & sets["test"]) < USUAL


def test_products_are_written_digit_by_digit():
    game = Products(digits=2)
    assert game.answer(34, 56) == "2 0 4 1 7 0 1 9 0 4"
    assert game.check("3 4 * 5 6 :", "2 0 4 1 7 0 1 9 0 4") == ("", "1904")
    # A chain that is wrong does not make the answer wrong: votes are for what is at the end.
    assert game.check("3 4 * 5 6 :", "9 9 9 9 9 9 1 9 0 4") == ("", "1904")
    assert game.check("3 4 * 5 6 :", "2 0 4 1 7 0 1 9 0 ²")[1] == "[invalid]"
    assert game.check("3 4 * 5 6 :", "2 0 4 1 7 0 1 9 0 14")[1] == "[invalid]"
    assert game.check("3 4 * 5 6 :", "2 0 4 1 7 0 1 9 0")[0] == "9 words, not 10"
    with pytest.raises(ValueError, match="digits must be at least 2"):
        Products(digits=1)


def test_a_split_has_so_many_problems():
    with pytest.raises(ValueError, match="the test split must have 2000 problems"):
        puzzle("small", limit=2000, game=Products(digits=2))
