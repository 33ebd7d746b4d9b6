"""The usual measures of texts, in one go."""

import numpy as np
import pytest

from sake_jax.metrics import (
    distinct,
    distinct_within,
    format_interval,
    load_judge,
    measure_texts,
    perplexity,
    sample_entropy,
    words,
)
from sake_jax.metrics.estimate import Estimate, estimate

GROUPS = [["the dog ran and the dog ran", "a cat"], ["so", "the end of the end"]]


def test_they_are_the_single_measures():
    cut = [[words(text) for text in group] for group in GROUPS]
    every = [*cut[0], *cut[1]]
    assert measure_texts(GROUPS) == {
        "distinct-2": distinct(every),
        "distinct-2 within": distinct_within(every),
        "distinct-2 across": np.mean([distinct(group) for group in cut]),
        "entropy": sample_entropy(every),
        "words": np.mean([len(units) for units in every]),
    }


def test_parts_of_a_text_have_no_pairs_across_their_borders():
    parts = measure_texts([[["a b", "c d"]]])
    assert parts["words"] == measure_texts([["a b c d"]])["words"] == 4
    assert measure_texts([[["a b", "a b"]]])["distinct-2"] == 0.5
    assert measure_texts([["a b a b"]])["distinct-2"] == pytest.approx(2 / 3)


def test_token_ids_are_units():
    ids = measure_texts([[[1, 2, 1, 2]], [[3, 4]]])
    assert ids == measure_texts([["a b a b"], ["c d"]])


def test_empty_texts():
    measured = measure_texts([["", ""]])
    assert set(measured.values()) == {0.0}


def test_a_judge_reads_each_prompt_before_its_texts():
    judge, prompts = load_judge("tinystories-causal"), ["once upon", "one day"]
    measured = measure_texts(GROUPS, prompts=prompts, judge=judge)
    before = ["once upon", "once upon", "one day", "one day"]
    texts = [text for group in GROUPS for text in group]
    assert measured["perplexity"] == perplexity(judge, texts, before).value
    assert measure_texts(GROUPS, judge=judge)["perplexity"] == perplexity(judge, texts).value


def test_intervals_are_written_the_same_from_scores_and_from_their_estimate():
    scores = [0.0, 1.0, 1.0, 0.5]
    assert format_interval(scores, "+.2f") == format_interval(estimate(scores), "+.2f")
    assert format_interval(Estimate(1.0, 0.5, 2.0)) == "1.000 (0.500 to 2.000)"
