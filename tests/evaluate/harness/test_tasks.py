"""Our models in lm-evaluation-harness: its own evaluator on small tasks, without the network."""

import importlib
import json
import subprocess
import sys
import zlib

import jax
import numpy as np
import pytest
from lm_eval.api.registry import get_model
from requested import DOCUMENTS, SAMPLED, SMALL, asking, evaluate, writing

import sake_jax as sj
from bytewise import CHAT
from sake_jax.evaluate.harness import HarnessModel, texts
from sake_jax.evaluate.harness.encoding import Encoding


def name_of(prompt):
    return zlib.crc32(prompt.encode()) >> 1


def test_it_is_registered_beside_lm_evals_own():
    assert get_model("sake_jax") is HarnessModel
    assert get_model("dummy").__name__ == "DummyLM"


def test_lm_eval_must_be_installed(monkeypatch):
    monkeypatch.delitem(sys.modules, "sake_jax.evaluate.harness")
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ImportError, match=r'must find .*; pip install "sake-jax\[eval\]"'):
        importlib.import_module("sake_jax.evaluate.harness")


def test_a_task_of_writing(tasks, stories):
    options = {"guidance": "sake", "strength": 2.0, "steps": 4, "seed": 3}
    results, answers = evaluate(tasks, "writing", stories, options)
    sampler = sj.masked(stories, length=8, steps=4, guidance=sj.sake(2.0), draw=sj.temperature(0.9))
    prompts = [document["question"] for document in DOCUMENTS]
    found = sj.generate(
        stories,
        sampler,
        prompts,
        samples=2,
        batch=4,
        key=jax.random.key(3),
        stop=["."],
        names=[name_of(prompt) for prompt in prompts],
    )
    assert [part for (part,) in answers] == found.texts
    assert any(one != two for one, two in found.texts), "repeats differ"
    right = [
        texts[0].split()[:1] == [document["answer"]]
        for texts, document in zip(found.texts, DOCUMENTS, strict=True)
    ]
    assert results["exact_match,first-word"] == pytest.approx(np.mean(right))


def test_a_task_of_choosing(tasks, stories):
    options = {"mc_samples": 16, "mc_batch": 8, "seed": 5, "greedy": False}
    results, answers = evaluate(tasks, "choosing", stories, options)
    nats = [[float(answer[0]) for (answer,) in part] for part in answers]
    encoding = Encoding(stories, truncate=False)
    choices = [" " + document["answer"] for document in DOCUMENTS]
    pairs = [encoding.pair(d["question"], choice) for d in DOCUMENTS for choice in choices]
    direct = sj.log_likelihood(
        stories,
        [pair.context for pair in pairs],
        [pair.answer for pair in pairs],
        key=jax.random.key(5),
        draws=16,
        batch=8,
    )
    np.testing.assert_allclose(np.ravel(nats), direct.value, rtol=1e-4)
    assert results["acc,none"] == np.mean(np.argmax(nats, axis=1) == np.arange(4))
    assert not any(answer[1] for part in answers for (answer,) in part), "nobody looked"


def test_a_task_of_reading(tasks, stories):
    results, answers = evaluate(tasks, "reading", stories, {"mc_samples": 8})
    ids = [stories.tokenizer(" ".join(d.values()))["input_ids"] for d in DOCUMENTS]
    direct = sj.log_likelihood(
        stories,
        [part[:1] for part in ids],
        [part[1:] for part in ids],
        key=jax.random.key(0),
        draws=8,
    )
    np.testing.assert_allclose(np.ravel(answers).astype(float), direct.value, rtol=1e-4)
    words = sum(len(" ".join(d.values()).split()) for d in DOCUMENTS)
    perplexity = np.exp(-direct.value.sum() / words)
    assert results["word_perplexity,none"] == pytest.approx(perplexity, rel=1e-3)


def test_texts_do_not_depend_on_order_batch_or_company(tiny, alone):
    for prompts, batch in ((sorted(alone), "4"), (["the fourth", "first prompt"], 2)):
        found = writing(HarnessModel(tiny, batch_size=batch, **SMALL), prompts, repeats=2)
        assert found == [text for prompt in prompts for text in alone[prompt]]
    assert len({text for part in alone.values() for text in part}) == 8
    other = HarnessModel(tiny, batch_size=4, seed=1, **SMALL)
    assert writing(other, ["first prompt", "second one"], repeats=2)[:2] != alone["first prompt"]


def test_requests_that_ask_for_different_things_keep_their_order(tiny, alone):
    model = HarnessModel(tiny, batch_size=2, **SMALL)
    stop = alone["first prompt"][0][2]
    requests = [
        *asking("generate_until", "first prompt", SAMPLED | {"until": [stop]}, repeats=2),
        *asking("generate_until", "second one", SAMPLED | {"max_gen_toks": 4}, repeats=2),
        *asking("generate_until", "first prompt", SAMPLED, repeats=2),
        *asking("generate_until", "first prompt", SAMPLED, repeats=2),
    ]
    found = model.generate_until(requests, disable_tqdm=True)
    assert found[:2] == [text.split(stop)[0] for text in alone["first prompt"]]
    assert found[4:] == alone["first prompt"] * 2, "so in two documents with one prompt"
    assert found[2:4] != alone["second one"]


def test_chats_are_prompts_in_the_models_form(tasks, tiny, stories, monkeypatch):
    seen = []

    def written(lm, part, options, batch):
        seen.extend(part)
        return [["good"] * document.repeats for document in part]

    monkeypatch.setattr(texts, "write", written)
    evaluate(tasks, "writing", tiny, apply_chat_template=True, limit=1)
    assert [document.text for document in seen] == ["<257><user>the dog felt"]
    assert seen[0].prompt[0] == 257
    assert seen[0].prompt.count(257) == 1
    model = HarnessModel(tiny)
    assert model.chat_template(True) == CHAT
    assert model.chat_template(False) is None
    assert model.tokenizer_name == str(tiny.folder).replace("/", "__")
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert model.apply_chat_template(turns, add_generation_prompt=False).endswith("<assistant>b")
    with pytest.raises(ValueError, match="chat templates have no names"):
        model.chat_template("tools")
    with pytest.raises(ValueError, match="needs a model with a chat template"):
        HarnessModel(stories).apply_chat_template(turns)


@pytest.mark.slow
def test_the_command(tasks, stories, tmp_path):
    words = "model=tinystories,guidance=none,steps=4,seed=3"
    command = ["--model", "sake_jax", "--model_args", words, "--tasks", "writing"]
    command += ["--include_path", str(tasks), "--batch_size", "4", "--limit", "2"]
    command += ["--output_path", str(tmp_path), "--log_samples"]
    done = subprocess.run(
        [sys.executable, "-m", "sake_jax.evaluate.harness", *command],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.rglob("samples_writing_*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    _, answers = evaluate(tasks, "writing", stories, {"steps": 4, "seed": 3}, limit=2)
    assert [line["resps"] for line in lines] == answers


@pytest.mark.slow
def test_on_a_mesh(tiny, alone):
    model = HarnessModel(str(tiny.folder), tensor=2, data=2, batch_size=4, **SMALL)
    prompts = ["first prompt", "second one"]
    assert writing(model, prompts, repeats=2) == alone[prompts[0]] + alone[prompts[1]]
