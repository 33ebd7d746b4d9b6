"""Log-likelihoods and greedy answers, as lm_eval asks for them."""

import jax
import lm_eval.utils
import numpy as np
import pytest
from replay import model
from requested import SMALL, asking, writing

import sake_jax as sj
from sake_jax.evaluate.harness import HarnessModel, Options, scores
from sake_jax.evaluate.harness.encoding import Pair
from sake_jax.evaluate.harness.options import parse_options
from sake_jax.metrics import load_judge, perplexity


def by_hand(lm, context, count, scale):
    """LLaDA's greedy answer: the surest of the likeliest tokens, one after another."""
    mask_id, before = lm.config.mask_id, len(context)
    row = np.asarray([*context, *[mask_id] * count])
    for _ in range(count):
        bare = np.where(np.arange(len(row)) < before, mask_id, row)
        logits, other = np.asarray(lm.logits(np.stack([row, bare])), np.float64)
        logits = other + (scale + 1) * (logits - other)
        chances = np.exp(logits - logits.max(axis=-1, keepdims=True))
        chances = (chances / chances.sum(axis=-1, keepdims=True)).max(axis=-1)
        at = np.argmax(np.where(row == mask_id, chances, 0))
        row[at] = logits[at].argmax()
    return tuple(row[before:].tolist())


def greedy_pairs(lm, scale):
    """Three pairs with greedy answers, and three without."""
    asked = [((5, 6, 7, 8), 4), ((9, 10), 6), ((3,) * 6, 2)]
    right = [Pair(context, by_hand(lm, context, count, scale)) for context, count in asked]
    assert lm.config.mask_id not in {token for pair in right for token in pair.answer}
    return right + [Pair(pair.context, (*pair.answer[:-1], 1)) for pair in right]


def test_greedy_is_what_masked_decoding_writes(tiny):
    found = scores.is_greedy(tiny, greedy_pairs(tiny, 0.0), parse_options(SMALL))
    assert found == [True] * 3 + [False] * 3


@pytest.mark.slow
def test_classifier_free_guidance_in_scores(tiny):
    pairs = greedy_pairs(tiny, 0.7)
    found = scores.score(tiny, pairs, parse_options(SMALL | {"cfg": 0.7}), batch=1)
    assert [score.greedy for score in found] == [True] * 3 + [False] * 3
    prompts, answers = zip(*pairs, strict=True)
    how = {"key": jax.random.key(0), "draws": 4, "scale": 0.7}
    direct = sj.log_likelihood(tiny, prompts, answers, **how)
    np.testing.assert_allclose([score.nats for score in found], direct.value, rtol=1e-4)


def test_greedy_where_nobody_looked_is_told(tiny, monkeypatch, caplog):
    assert not any(scores.has_greedy(model(name)) for name in ("udlm", "bd3lm"))
    assert all(scores.has_greedy(model(name)) for name in ("gpt2", "mdlm"))
    monkeypatch.setattr(scores, "score", lambda lm, pairs, *_: [scores.Score(-1.0, False)])
    lm_eval.utils.warning_once.cache_clear()
    for greedy in (True, False):
        HarnessModel(tiny, greedy=greedy).loglikelihood(asking("loglikelihood", "ab", "cd"))
        assert ("is_greedy is False for all" in caplog.text) is not greedy


def test_causal_models_are_scored_exactly():
    lm = model("gpt2")
    row = [5, 6, 7]
    for _ in range(3):
        filled = np.asarray([row + [0] * (8 - len(row))])
        row.append(int(np.argmax(lm.logits(filled)[0, len(row) - 1])))
    pairs = [Pair((5, 6, 7), tuple(row[3:])), Pair((5, 6), (7, row[3])), Pair((8,), (9, 10))]
    found = scores.score(lm, pairs, Options(), batch=3)
    rows = np.asarray(
        [[*context, *answer] + [0] * (8 - len(context + answer)) for context, answer in pairs]
    )
    log_p = np.asarray(lm.score(rows))
    nats = [log_p[0, 3:6].sum(), log_p[1, 2:4].sum(), log_p[2, 1:3].sum()]
    np.testing.assert_allclose([score.nats for score in found], nats, rtol=1e-4)
    likeliest = np.argmax(lm.logits(rows[2:]), axis=-1)[0, :2].tolist() == [9, 10]
    assert [score.greedy for score in found] == [True, False, likeliest]
    unseen = scores.score(lm, [*pairs, pairs[0]], Options(greedy=False), batch=3)
    assert [score.greedy for score in unseen] == [False] * 4
    np.testing.assert_allclose([score.nats for score in unseen], [*nats, nats[0]], rtol=1e-4)


@pytest.mark.slow
def test_the_causal_twin():
    judge = load_judge("tinystories-causal")
    asked = [("the dog was very ", "happy"), ("the dog was", " very sad"), ("", "once upon a")]
    requests = [request for pair in asked for request in asking("loglikelihood", *pair)]
    twin = HarnessModel(judge, batch_size=2)
    nats = [nats for nats, _ in twin.loglikelihood(requests)]
    prompts, answers = (
        ["the dog was very", "the dog was", ""],
        [" happy", " very sad", "once upon a"],
    )
    direct = perplexity(judge, answers, prompts)
    np.testing.assert_allclose(nats, -direct.nats, rtol=1e-4)
    (whole,) = twin.loglikelihood_rolling(asking("loglikelihood_rolling", "once upon a"))
    assert whole == pytest.approx(nats[2], rel=1e-5)
    with pytest.raises(ValueError, match="samplers are for diffusion models"):
        writing(twin, ["once"])
