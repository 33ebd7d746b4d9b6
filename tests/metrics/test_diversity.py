"""distinct-n and entropy, by hand."""

import math

import pytest

from sake_jax.metrics import distinct, distinct_within, sample_entropy, words


def test_words_are_lower_case_with_punctuation_apart():
    assert words("Lily’s cat, a CAT.") == ["lily’s", "cat", ",", "a", "cat", "."]


@pytest.mark.parametrize(
    ("texts", "n", "share"),
    [
        (["a b c"], 2, 1.0),
        (["a b a b"], 2, 2 / 3),
        (["a b", "a b"], 2, 1 / 2),
        (["a b", "a b"], 1, 2 / 4),
        (["a", ""], 2, 0.0),
        ([], 2, 0.0),
    ],
)
def test_distinct(texts, n, share):
    assert distinct([text.split() for text in texts], n) == pytest.approx(share)


def test_within_a_text_and_over_all_texts_differ():
    same = [["a", "b", "c"]] * 4
    assert distinct_within(same) == 1
    assert distinct(same) == 2 / 8
    assert distinct_within([["a"], ["a", "b", "a", "b"]]) == pytest.approx(2 / 3), (
        "too short: left out"
    )
    assert distinct_within([]) == 0


def test_texts_must_be_cut():
    for measure in (distinct, distinct_within, sample_entropy):
        with pytest.raises(ValueError, match="must be cut into words or tokens"):
            measure(["the cat"])


def test_token_ids_are_units_too():
    assert distinct([[1, 2, 1, 2]]) == pytest.approx(2 / 3)


def test_entropy_of_each_text():
    assert sample_entropy([["a", "b", "c", "d"]]) == pytest.approx(math.log(4))
    assert sample_entropy([["a", "a"], ["a", "b"]]) == pytest.approx(math.log(2) / 2)
    assert sample_entropy([[]]) == 0
