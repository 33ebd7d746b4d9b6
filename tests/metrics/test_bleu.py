"""Self-BLEU by hand, and against sacrebleu."""

import math

import numpy as np
import pytest

from sake_jax.metrics.bleu import self_bleu
from sake_jax.metrics.diversity import words


def test_same_texts_and_texts_without_a_common_word():
    text = words("The dog ran home, and the cat ran too.")
    assert self_bleu([text] * 3) == pytest.approx(1)
    assert self_bleu([["a", "b"], ["c", "d"]]) == 0


def test_by_hand():
    one, other = ["a", "b", "c"], ["a", "b", "d", "e"]
    # Of `one`: 2 of 3 words and 1 of 2 pairs match, and it is shorter by 1.
    first = math.exp(1 - 4 / 3) * math.sqrt(2 / 3 * 1 / 2)
    second = math.sqrt(2 / 4 * 1 / 3)
    assert self_bleu([one, other], n=2) == pytest.approx((first + second) / 2)
    # No triple matches: half a match.
    first = math.exp(1 - 4 / 3) * (2 / 3 * 1 / 2 * 0.5 / 1) ** (1 / 3)
    second = (2 / 4 * 1 / 3 * 0.5 / 2) ** (1 / 3)
    assert self_bleu([one, other], n=3) == pytest.approx((first + second) / 2)


def test_a_repeated_word_matches_as_often_as_one_other_text_has_it():
    found = self_bleu([["a", "a", "a"], ["a", "b", "c"], ["a", "a", "d"]], n=1)
    assert found == pytest.approx((2 / 3 + 1 / 3 + 2 / 3) / 3)


def random_texts(seed: int) -> list[list[str]]:
    random = np.random.default_rng(seed)
    sizes = random.integers(0 if seed % 2 else 3, 14, size=6)
    return [list(random.choice(list("abcdefg"), size)) for size in sizes]


@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_equals_sacrebleu(n):
    metrics = pytest.importorskip("sacrebleu.metrics")
    theirs = metrics.BLEU(
        tokenize="none", smooth_method="exp", effective_order=True, max_ngram_order=n
    )
    for seed in range(20):
        texts = random_texts(seed)
        lines = [" ".join(text) for text in texts]
        scores = [
            theirs.sentence_score(line, lines[:at] + lines[at + 1 :]).score / 100
            for at, line in enumerate(lines)
        ]
        assert self_bleu(texts, n) == pytest.approx(np.mean(scores), abs=1e-6), seed


def test_token_ids_are_units_too_and_letters_are_not():
    assert self_bleu([[1, 2, 3], [1, 2, 3]]) == pytest.approx(1)
    with pytest.raises(ValueError, match="cut it with words"):
        self_bleu(["the dog", "the cat"])
    with pytest.raises(ValueError, match="two or more"):
        self_bleu([["a"]])
    with pytest.raises(ValueError, match="n must be at least 1"):
        self_bleu([["a"], ["b"]], n=0)
