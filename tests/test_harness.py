"""Our models in lm-evaluation-harness: its own evaluator on small tasks, without the network."""

import importlib
import json
import os
import subprocess
import sys
import zlib

import jax
import numpy as np
import pytest
import yaml
from replay import model

import sake_jax as sj
from bytewise import CHAT, byte_llada

pytest.importorskip("lm_eval")
os.environ |= {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}

import lm_eval.evaluator
import lm_eval.utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook, CachingLM
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager
from sqlitedict import SqliteDict

from sake_jax.evaluate import load_judge, perplexity
from sake_jax.harness import HarnessModel, Options, scores, texts
from sake_jax.harness.encoding import Encoding, Pair
from sake_jax.harness.options import options_of

DOCUMENTS = [  # of one length in bytes: fewer programs
    {"question": "the dog felt", "answer": "good"},
    {"question": "lily went to", "answer": "play"},
    {"question": "the cat went", "answer": "down"},
    {"question": "tom looks at", "answer": "them"},
]
SMALL = {"steps": 4, "mc_samples": 4, "mc_batch": 16}
SAMPLED = {"until": ["."], "do_sample": True, "temperature": 0.9, "max_gen_toks": 8}


class Cut(Exception):
    """A run that ends before its time."""


@pytest.fixture(scope="module", autouse=True)
def no_report():
    """What lm_eval tells of the machine takes it seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm_eval.evaluator, "add_env_info", lambda results: None)
        patch.setattr(lm_eval.evaluator, "get_git_commit_hash", lambda: None)
        yield


@pytest.fixture(scope="module")
def stories():
    return sj.load("tinystories")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return byte_llada(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A folder with one task of each kind."""
    folder = tmp_path_factory.mktemp("tasks")
    lines = "\n".join(json.dumps(document) for document in DOCUMENTS)
    (folder / "documents.jsonl").write_text(lines)
    files = {"data_files": {"test": str(folder / "documents.jsonl")}, "cache_dir": str(folder)}
    common = {"dataset_path": "json", "dataset_kwargs": files, "test_split": "test"}
    common |= {"doc_to_text": "{{question}}", "doc_to_target": "{{answer}}"}
    word = [{"function": "regex", "regex_pattern": r"(\w+)"}, {"function": "take_first"}]
    own = {
        "writing": {
            "output_type": "generate_until",
            "generation_kwargs": SAMPLED,
            "repeats": 2,
            "filter_list": [{"name": "first-word", "filter": word}],
            "metric_list": [metric("exact_match", "mean", True)],
        },
        "choosing": {
            "output_type": "multiple_choice",
            "doc_to_choice": [document["answer"] for document in DOCUMENTS],
            "metric_list": [metric("acc", "mean", True)],
        },
        "reading": {
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{question}} {{answer}}",
            "metric_list": [metric("word_perplexity", "weighted_perplexity", False)],
        },
    }
    for name, entries in own.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(common | {"task": name} | entries))
    return folder


def metric(name, aggregation, higher):
    return {"metric": name, "aggregation": aggregation, "higher_is_better": higher}


def evaluate(tasks, name, lm, options=None, **others):
    """lm_eval's results, and the answers by document."""
    model = HarnessModel(lm, batch_size=4, **options or {})
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    found = lm_eval.evaluator.simple_evaluate(
        model, tasks=[name], task_manager=manager, bootstrap_iters=0, **others
    )
    assert found is not None
    return found["results"][name], [sample["resps"] for sample in found["samples"][name]]


def asking(kind, *arguments, repeats=1):
    """One request, as often as lm_eval would list it."""
    return [Instance(kind, {}, arguments, 0, ("task", 0, repeats))] * repeats


def writing(model, prompts, repeats=1, **changes):
    lists = [asking("generate_until", p, SAMPLED | changes, repeats=repeats) for p in prompts]
    return model.generate_until([request for part in lists for request in part], disable_tqdm=True)


def name_of(prompt):
    return zlib.crc32(prompt.encode()) >> 1


def test_it_is_registered_beside_lm_evals_own():
    assert get_model("sake_jax") is HarnessModel
    assert get_model("dummy").__name__ == "DummyLM"


def test_lm_eval_must_be_installed(monkeypatch):
    monkeypatch.delitem(sys.modules, "sake_jax.harness")
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ImportError, match=r'must find .*; pip install "sake-jax\[eval\]"'):
        importlib.import_module("sake_jax.harness")


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


@pytest.fixture(scope="module")
def alone(tiny):
    """texts[prompt][repeat], prompt by prompt."""
    model = HarnessModel(tiny, batch_size=4, **SMALL)
    pairs = ["first prompt", "second one"], ["the third one", "the fourth"]
    found = {}
    for prompts in pairs:
        written = writing(model, prompts, repeats=2)
        found |= {prompts[0]: written[:2], prompts[1]: written[2:]}
    return found


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


@pytest.mark.parametrize("sampled", [True, False])
def test_a_run_that_was_cut_goes_on_in_lm_evals_cache(sampled, tasks, tiny, tmp_path, monkeypatch):
    options = SMALL | {"temperature": 0.9, "length": 8, "greedy": False}
    name = "writing" if sampled else "choosing"
    monkeypatch.setattr(scores, "TOGETHER", 4)
    whole = evaluate(tasks, name, tiny, options)
    module, verb = (texts, "write") if sampled else (scores, "score")
    honest, calls = getattr(module, verb), []

    def counted(lm, part, *others):
        calls.append(len(part))
        if len(calls) == 2:
            raise Cut
        return honest(lm, part, *others)

    monkeypatch.setattr(module, verb, counted)
    cache = {"use_cache": str(tmp_path / "cache")}
    with pytest.raises(Cut):
        evaluate(tasks, name, tiny, options, **cache)
    first = calls[0]
    assert evaluate(tasks, name, tiny, options, **cache) == whole
    assert sum(calls[2:]) == (4 if sampled else 16) - first, "what was done is not done again"
    done = len(calls)
    assert evaluate(tasks, name, tiny, options, **cache) == whole
    assert len(calls) == done, "all of it is there"
    with pytest.raises(ValueError, match="cache must be of a run with"):
        evaluate(tasks, name, tiny, options | {"seed": 1}, **cache)


def test_greedy_texts_are_kept_where_lm_eval_looks_for_them(tiny, tmp_path, monkeypatch):
    written = []

    def write(lm, part, *_):
        written.append(part[0].text)
        if len(written) == 2:
            raise Cut
        return [[part[0].text.upper()]]

    monkeypatch.setattr(texts, "write", write)
    cached = CachingLM(HarnessModel(tiny, batch_size=1), str(tmp_path / "cache.db"))
    wanted = {"until": [], "max_gen_toks": 8}
    requests = [asking("generate_until", name, wanted)[0] for name in ("one", "two", "three")]
    with pytest.raises(Cut):
        cached.generate_until(requests)
    assert cached.generate_until(requests) == ["ONE", "TWO", "THREE"]
    assert written == ["two", "three", "three", "one"], "what was done is not done again"


def test_repeats_that_lm_evals_cache_would_make_one(tasks, tiny, tmp_path):
    others = {"gen_kwargs": {"do_sample": False}, "use_cache": str(tmp_path / "cache")}
    with pytest.raises(ValueError, match="repeats with --use_cache must have do_sample=true"):
        evaluate(tasks, "writing", tiny, **others)


def test_a_cache_of_another_model(tiny, tmp_path):
    hook = CacheHook(None)
    hook.dbdict = SqliteDict(tmp_path / "cache.db", autocommit=True)
    hook.dbdict["their request"] = "their text"
    with pytest.raises(ValueError, match=r"must be of a run with .*, got \"another model's\""):
        HarnessModel(tiny).set_cache_hook(hook)


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
    found = scores.is_greedy(tiny, greedy_pairs(tiny, 0.0), options_of(SMALL))
    assert found == [True] * 3 + [False] * 3


@pytest.mark.slow
def test_classifier_free_guidance_in_scores(tiny):
    pairs = greedy_pairs(tiny, 0.7)
    found = scores.score(tiny, pairs, options_of(SMALL | {"cfg": 0.7}), batch=1)
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
        [sys.executable, "-m", "sake_jax.harness", *command], capture_output=True, text=True
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
