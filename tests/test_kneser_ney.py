"""The n-gram model of the benchmarks, against its definition in plain Python."""

import collections
import importlib
import math
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
V, END = 13, 4
"""The last token is never seen."""


@pytest.fixture(scope="module")
def kneser_ney():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("kneser_ney")


def documents(seed, count):
    """Texts in which some tokens like each other; a few are very short."""
    random = np.random.default_rng(seed)
    others = np.delete(np.arange(V - 1), END)
    found = []
    for length in random.integers(1, 15, count):
        text = [random.choice(others)]
        while len(text) < length:
            text.append(others[(text[-1] + random.geometric(0.5)) % len(others)])
        found.append([int(token) for token in text])
    return found


def stream(texts):
    return np.concatenate([[*text, END] for text in texts])


TRAIN, HELD = documents(0, 200), documents(1, 20)


@pytest.fixture(scope="module", params=[1, 2, 5])
def model(request, kneser_ney):
    return kneser_ney.fit(stream(TRAIN), V, END, request.param)


class Reference:
    """Interpolated Kneser-Ney with modified discounts, as Chen and Goodman define it."""

    def __init__(self, texts, order):
        marked = [(END, *text, END) for text in texts]
        raw = collections.Counter(
            text[last + 1 - n : last + 1]
            for text in marked
            for last in range(1, len(text))
            for n in range(1, min(order, last + 1) + 1)
        )
        before = collections.Counter(gram[1:] for gram in raw if len(gram) > 1)
        self.order, self.counts = order, {}
        for gram, count in raw.items():
            own = len(gram) == order or (len(gram) > 1 and gram[0] == END)
            self.counts[gram] = count if own else before[gram]
        self.cuts = {n: self.discounts(n) for n in range(1, order + 1)}

    def discounts(self, n):
        of = collections.Counter(count for gram, count in self.counts.items() if len(gram) == n)
        if not all(of[k] for k in (1, 2, 3, 4)):
            return [0, 0.5, 1, 1.5]
        y = of[1] / (of[1] + 2 * of[2])
        found = [0] + [k - (k + 1) * y * of[k + 1] / of[k] for k in (1, 2, 3)]
        right = all(0 < found[k] <= k for k in (1, 2, 3))
        return found if right else [0, 0.5, 1, 1.5]

    def p(self, context, token):
        """The chance of a token after a context, which may begin with the marker."""
        return self.mixed(tuple(context[max(0, len(context) - self.order + 1) :]), token)

    def mixed(self, context, token):
        lower = self.mixed(context[1:], token) if context else 1 / V
        counts = [self.counts.get((*context, other), 0) for other in range(V)]
        if not sum(counts):
            return lower
        cut = self.cuts[len(context) + 1]
        left = sum(cut[min(count, 3)] for count in counts)
        count = counts[token]
        return (count - cut[min(count, 3)] + left * lower) / sum(counts)


def contexts(texts):
    """Every token of texts and what stands before it, the marker included."""
    for text in texts:
        marked = [END, *text, END]
        for at in range(1, len(marked)):
            yield marked[:at], marked[at]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_it_is_kneser_ney(kneser_ney, order):
    model, reference = kneser_ney.fit(stream(TRAIN), V, END, order), Reference(TRAIN, order)
    wanted = [math.log(reference.p(*pair)) for pair in contexts(HELD)]
    np.testing.assert_allclose(model.log_p(stream(HELD)), wanted, rtol=1e-12)


def test_a_tiny_text_has_the_fallback_discounts(kneser_ney):
    texts = [[0, 1, 2, 1], [2, 1]]
    model, reference = kneser_ney.fit(stream(texts), V, END, 3), Reference(texts, 3)
    wanted = [math.log(reference.p(*pair)) for pair in contexts(HELD)]
    np.testing.assert_allclose(model.log_p(stream(HELD)), wanted, rtol=1e-12)


@pytest.mark.parametrize(
    "context", [[], [END], [0, 1, 2, 3, 5, 6], [V - 1, 0], [0, V - 1], [END, 2], [1, 2, END], [7]]
)
def test_chances_sum_to_one(model, context):
    p = model.distribution(context)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert p.min() > 0, "nothing is impossible"


def test_a_stream_is_scored_token_by_token(model):
    each = [math.log(model.distribution(context)[token]) for context, token in contexts(HELD)]
    np.testing.assert_allclose(model.log_p(stream(HELD)), each, rtol=1e-12)


def test_what_stands_before_a_document_does_not_matter(model):
    for context in ([], [3], [2, 5]):
        here = model.distribution([END, *context])
        np.testing.assert_array_equal(model.distribution([1, 2, END, *context]), here)


def test_longer_contexts_help(kneser_ney):
    """Tokens of these texts depend on the one before."""
    one, two = (kneser_ney.fit(stream(TRAIN), V, END, order) for order in (1, 2))
    held = stream(HELD)
    assert two.log_p(held).mean() > one.log_p(held).mean() + 0.1


def test_samples_follow_the_chances(model):
    random, context, count = np.random.default_rng(0), [END, 2], 4000
    drawn = [tuple(model.sample(context, 1, random)) for _ in range(count)]
    found = np.bincount([token[0] if token else END for token in drawn], minlength=V) / count
    p = model.distribution(context)
    assert np.all(np.abs(found - p) < 4.5 * np.sqrt(p * (1 - p) / count))


def test_samples_end(model):
    random = np.random.default_rng(0)
    texts = [model.sample([END], 10, random) for _ in range(50)]
    assert {len(text) for text in texts} >= {1, 10}
    assert all(END not in text for text in texts)


def test_what_does_not_fit_is_refused(kneser_ney):
    with pytest.raises(ValueError, match="63 bits"):
        kneser_ney.fit(stream(TRAIN), 50_257, END, 5)
    with pytest.raises(ValueError, match="lower the order"):
        kneser_ney.fit(stream([[1], [2]]), V, END, 5)
