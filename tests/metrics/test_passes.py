"""pass@k against enumeration, and the intervals against known success rates."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from sake_jax.metrics.passes import (
    Estimate,
    estimate,
    pass_at_evaluations,
    pass_at_k,
    pass_rate,
)


def enumerated(n: int, c: int, k: int) -> Fraction:
    """Over all choices of k samples."""
    samples = [True] * c + [False] * (n - c)
    choices = list(itertools.combinations(samples, k))
    return Fraction(sum(any(choice) for choice in choices), len(choices))


def test_equals_enumeration_to_the_last_bit():
    cases = [(n, c, k) for n in range(1, 9) for c in range(n + 1) for k in range(1, n + 1)]
    for n, c, k in cases:
        assert pass_at_k(n, c, k) == float(enumerated(n, c, k)), (n, c, k)


def test_large_numbers_stay_exact():
    for k in range(1, 201):  # one right sample of 200
        assert pass_at_k(200, 1, k) == k / 200
    assert pass_at_k(1000, 990, 11) == 1


def test_over_problems_with_different_numbers_of_samples():
    found = pass_at_k([4, 2, 3], [1, 2, 0], 2)
    np.testing.assert_array_equal(found, [0.5, 1.0, 0.0])
    assert pass_at_k(np.asarray([[4], [2]]), 1, 1).tolist() == [[0.25], [0.5]]


def test_a_rate_is_the_mean_over_problems():
    correct = [[True, False, False, False], [True, True], [False, False, False]]
    rate = pass_rate(correct, 2)
    assert rate.value == pytest.approx(0.5)
    assert 0 <= rate.low < rate.value < rate.high <= 1
    assert pass_rate(np.asarray([[True], [True]]), 1) == Estimate(1, 1, 1)


def test_intervals_hold_the_true_rate_about_as_often_as_they_say():
    random, held, p, k = np.random.default_rng(0), 0, 0.3, 2
    truth = 1 - (1 - p) ** k
    for seed in range(200):
        rate = pass_rate(random.random((60, 4)) < p, k, draws=400, seed=seed)
        held += rate.low <= truth <= rate.high
    assert 0.9 <= held / 200 <= 0.99


def test_the_estimator_is_unbiased_where_the_plain_share_is_not():
    random, p = np.random.default_rng(1), 0.2
    correct = random.random((40_000, 5)) < p
    truth = 1 - (1 - p) ** 3
    noise = 4 / np.sqrt(len(correct))  # of a share of problems, four times over
    assert abs(pass_at_k(5, correct.sum(axis=1), 3).mean() - truth) < noise
    plain = 1 - (1 - correct.mean(axis=1)) ** 3
    assert abs(plain.mean() - truth) > noise


def test_the_options_of_intervals():
    scores = np.random.default_rng(2).random(30)
    usual = estimate(scores)
    half = estimate(scores, level=0.5)
    assert half.high - half.low < usual.high - usual.low
    assert estimate(scores) == usual, "the seed decides"
    assert estimate(scores, seed=1) != usual
    assert estimate(scores, draws=50) != usual
    table = np.random.default_rng(3).random((30, 3)) < 0.5
    for options in ({"level": 0.5}, {"draws": 50}, {"seed": 1}):
        assert pass_rate(table, 2, **options) != pass_rate(table, 2)
        spent = pass_at_evaluations(table, 8, 16, **options)
        assert spent == pass_rate(table, 2, **options)


def test_an_interval_is_that_of_resampled_problems():
    scores = np.asarray([0.0, 0.0, 0.5, 1.0, 1.0, 1.0, 0.25])
    drawn = np.random.default_rng(5).integers(0, 7, (200_000, 7))
    low, high = np.quantile(scores[drawn].mean(axis=1), [0.025, 0.975])
    found = estimate(scores, draws=200_000)
    assert found.low == pytest.approx(low, abs=0.01)
    assert found.high == pytest.approx(high, abs=0.01)


@pytest.mark.parametrize(
    ("budget", "k"), [(0, 0), (63, 0), (64, 1), (127, 1), (128, 2), (192, 3), (256, 4), (9999, 4)]
)
def test_evaluations_buy_samples(budget, k):
    correct = [[True, False, False, False], [False, True, True, False], [False] * 4]
    value = pass_at_evaluations(correct, 64, budget).value
    assert value == (pass_rate(correct, k).value if k else 0)


def test_evaluations_of_each_sample():
    correct = [[True, False, False], [True, False]]
    costs = [[1, 2, 2], [10, 30]]
    assert pass_at_evaluations(correct, costs, 4).value == pytest.approx((2 / 3 + 0) / 2)
    assert pass_at_evaluations(correct, costs, 5).value == (1 + 0) / 2, "all three, and none"
    assert pass_at_evaluations(correct, costs, 20).value == (1 + 1 / 2) / 2
    assert pass_at_evaluations(correct, costs, 39).value == (1 + 1 / 2) / 2
    assert pass_at_evaluations(correct, costs, 40).value == 1


def test_what_cannot_be_estimated():
    with pytest.raises(ValueError, match="draw more, or lower k"):
        pass_rate([[True, False], [True]], 2)
    with pytest.raises(ValueError, match="must be 0 to all"):
        pass_at_k(3, 4, 1)
    with pytest.raises(ValueError, match="k must be at least 1"):
        pass_at_k(3, 2, 0)
    with pytest.raises(ValueError, match="must have samples"):
        pass_rate([[True], []], 1)
    with pytest.raises(ValueError, match="needs scores"):
        estimate([])
    with pytest.raises(ValueError, match="between 0 and 1"):
        estimate([1.0], level=95)
    with pytest.raises(ValueError, match="shape of correct"):
        pass_at_evaluations([[True, False]], [[1]], 4)
    with pytest.raises(ValueError, match="evaluations must be above 0"):
        pass_at_evaluations([[True, False]], [[1, 0]], 4)
