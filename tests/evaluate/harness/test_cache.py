"""Runs that were cut, in lm_eval's cache."""

import pytest
from lm_eval.api.model import CacheHook, CachingLM
from requested import SMALL, asking, evaluate
from sqlitedict import SqliteDict

from sake_jax.evaluate.harness import HarnessModel, scores, texts


class Cut(Exception):
    """A run that ends before its time."""


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


def test_a_kill_in_the_middle_of_keeping_a_part(tiny, tmp_path, monkeypatch):
    """All of it is there again: the others would be cut into other parts, and rounded otherwise."""
    monkeypatch.setattr(scores, "TOGETHER", 3)
    scored = []

    def score(lm, part, *_):
        scored.append(list(part))
        return [scores.Score(-float(pair.answer[-1]), False) for pair in part]

    monkeypatch.setattr(scores, "score", score)
    requests = [asking("loglikelihood", "ab", letter)[0] for letter in "cdefg"]
    whole = HarnessModel(tiny).loglikelihood(requests)
    parts, path = list(scored), str(tmp_path / "cache.db")
    cut = CachingLM(HarnessModel(tiny), path)
    honest = SqliteDict.__setitem__

    def cut_off(entries, key, value):
        if isinstance(value, tuple) and any(isinstance(v, tuple) for v in entries.values()):
            raise Cut
        honest(entries, key, value)

    monkeypatch.setattr(SqliteDict, "__setitem__", cut_off)
    with pytest.raises(Cut):
        cut.loglikelihood(requests)
    cut.dbdict.close()
    monkeypatch.setattr(SqliteDict, "__setitem__", honest)
    scored.clear()
    assert CachingLM(HarnessModel(tiny), path).loglikelihood(requests) == whole
    assert scored == parts[1:]


def test_windows_of_a_text_that_was_not_finished_are_kept(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "TOGETHER", 2)
    scored, most = [], [9]

    def score(lm, part, *_):
        if len(scored) == most[0]:
            raise Cut
        scored.append(list(part))
        return [scores.Score(-float(sum(pair.answer)), False) for pair in part]

    monkeypatch.setattr(scores, "score", score)
    long = ["".join(chr(97 + (at * step) % 26) for at in range(300)) for step in (1, 3)]
    requests = [asking("loglikelihood_rolling", text)[0] for text in (*long, "short")]
    whole = HarnessModel(tiny).loglikelihood_rolling(requests)
    parts, path = list(scored), str(tmp_path / "cache.db")
    assert [len(part) for part in parts] == [2, 2, 2, 1], "texts of three windows, and a short one"
    scored.clear()
    most[0] = 1
    with pytest.raises(Cut):
        CachingLM(HarnessModel(tiny), path).loglikelihood_rolling(requests)
    scored.clear()
    most[0] = 9
    assert CachingLM(HarnessModel(tiny), path).loglikelihood_rolling(requests) == whole
    assert scored == parts[1:], "what was done is not done again"


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
