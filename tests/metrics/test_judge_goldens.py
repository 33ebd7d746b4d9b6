"""Perplexity under tiny judges of every family, against what transformers computed with them."""

import dataclasses

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.metrics import perplexity

PROMPT = 4
"""Tokens of a text that are its prompt, in some of the tests."""


@pytest.fixture(params=["gpt2", "llama", "qwen2", "qwen3"])
def recorded(request, golden):
    """A judge that reads words such as "17" as token ids, and recorded ids and logits by row."""
    lm, arrays = sj.load(GOLDENS / request.param), golden(f"{request.param}/golden.npz")
    words = models.WordLevel({str(at): at for at in range(lm.config.network.V)}, unk_token="0")
    reader = Tokenizer(words)
    reader.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    vars(lm)["tokenizer"] = PreTrainedTokenizerFast(tokenizer_object=reader)
    lengths = arrays["attention_mask"].sum(axis=1)
    pairs = zip(arrays["input_ids"], arrays["logits"], lengths, strict=True)
    return lm, [(ids[:end].tolist(), logits[:end]) for ids, logits, end in pairs]


def beginning(lm, token):
    """The judge with another beginning-of-text token: the recorded rows have their own."""
    judge = dataclasses.replace(lm, config=dataclasses.replace(lm.config, bos_id=token))
    vars(judge)["tokenizer"] = lm.tokenizer
    return judge


def surprise(ids, logits):
    """Nats of each token but the first, from recorded logits."""
    logits = np.asarray(logits[:-1], np.float64)
    total = np.log(np.exp(logits - logits.max(axis=-1, keepdims=True)).sum(axis=-1))
    return total + logits.max(axis=-1) - logits[np.arange(len(ids) - 1), ids[1:]]


def test_perplexity_is_what_transformers_computes(recorded):
    lm, rows = recorded
    assert [len(ids) for ids, _ in rows] == [17, 12]
    for ids, logits in rows:
        found = perplexity(beginning(lm, ids[0]), [" ".join(map(str, ids[1:]))])
        theirs = surprise(ids, logits)
        assert found.tokens.tolist() == [len(ids) - 1]
        assert found.value == pytest.approx(np.exp(theirs.mean()), rel=1e-3)
        np.testing.assert_allclose(found.nats, theirs.sum(), rtol=1e-4)


def test_a_prompts_own_tokens_do_not_count(recorded):
    lm, rows = recorded
    for ids, logits in rows:
        prompt, text = ids[1 : 1 + PROMPT], ids[1 + PROMPT :]
        words = " " + " ".join(map(str, text))
        found = perplexity(beginning(lm, ids[0]), [words], " ".join(map(str, prompt)))
        theirs = surprise(ids, logits)[PROMPT:]
        assert found.tokens.tolist() == [len(text)]
        assert found.value == pytest.approx(np.exp(theirs.mean()), rel=1e-3)
