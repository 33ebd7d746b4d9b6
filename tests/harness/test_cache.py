"""Runs that were cut, in lm_eval's cache."""

import pytest
from lm_eval.api.model import CacheHook, CachingLM
from requested import SMALL, asking, evaluate
from sqlitedict import SqliteDict

from sake_jax.harness import HarnessModel, scores, texts


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
