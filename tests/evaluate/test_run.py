"""Runs on tasks: known chances come out, and a stopped run goes on."""

import dataclasses
import errno
import itertools
import json
import math

import jax
import numpy as np
import pytest
from scripted import scripted

import sake_jax as sj
from disks import written_by_another
from sake_jax import journal
from sake_jax.evaluate import Problem, Task, Verdict, gsm8k, open_ended
from sake_jax.evaluate.report import report, vote
from sake_jax.evaluate.results import read_results
from sake_jax.evaluate.run import Shard, run
from sake_jax.metrics.passes import pass_rate
from sake_jax.metrics.votes import self_consistency
from sake_jax.samplers import Request

CHANCES = {"#### 4": 0.4, "#### 5": 0.35, "none": 0.25}


def records(tmp_path, count):
    path = tmp_path / "questions.jsonl"
    lines = [{"question": f"{at} + 4 - {at}?", "answer": "so\n#### 4"} for at in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def lm():
    return scripted(CHANCES)


@pytest.fixture(scope="module")
def sampler(lm):
    return Request(length=1).build(lm)


def small(count=6):
    """A task whose right answer is "#### 4"."""
    problems = tuple(Problem(f"p{at}", "x" * at, {}) for at in range(count))

    def judge(answers):
        return [Verdict({"same": t == "#### 4"}, {"same": t}, "") for _, t in answers]

    return Task("small", problems, (), ("same",), judge)


def votes_right(n):
    """The exact chance that the vote of n samples is 4, ties to the first to appear."""
    total = 0.0
    for answers in itertools.product(CHANCES, repeat=n):
        counts = {a: answers.count(a) for a in dict.fromkeys(answers) if a != "none"}
        won = max(counts, key=counts.__getitem__, default="none")
        total += math.prod(CHANCES[a] for a in answers) * (won == "#### 4")
    return total


def test_known_chances_give_pass_at_k_and_votes(lm, sampler, tmp_path):
    task = gsm8k(records(tmp_path, 200), shots=0)
    found = run(lm, sampler, task, tmp_path / "run", samples=8, batch=256)
    sure = {"level": 0.999}  # nine looks at one run
    for k in (1, 2, 8):
        passes = pass_rate(found.correct("strict-match"), k, **sure)
        assert passes.low <= 1 - (1 - CHANCES["#### 4"]) ** k <= passes.high
        assert passes.high - passes.low < 0.25
    answers = found.answers("strict-match")
    for n in (1, 3, 5):
        for voted in self_consistency(answers, lambda _, answer: answer == "4", n, **sure):
            assert voted.low <= votes_right(n) <= voted.high
        assert (
            vote(found, "strict-match", n).value
            == self_consistency(answers, lambda _, answer: answer == "4", n).first.value
        )
    assert np.array_equal(found.correct("strict-match"), found.correct("flexible-extract"))
    text = report([found], tmp_path / "report", ks=(1, 5))
    assert "votes, strict-match" in text
    assert f"{vote(found, 'strict-match', 5).value:.3f}" in text
    assert (tmp_path / "report" / "passes.png").stat().st_size > 10_000


def test_neither_batch_nor_shards_nor_an_interruption_change_samples(lm, sampler, tmp_path):
    whole = run(lm, sampler, small(), tmp_path / "whole", samples=4, seed=1)
    assert whole.complete
    assert len({line["text"] for lines in whole.lines.values() for line in lines}) > 1
    other = run(lm, sampler, small(), tmp_path / "batch", samples=4, seed=1, batch=3)
    assert other.lines == whole.lines
    for index in (2, 0, 1):
        part = run(lm, sampler, small(), tmp_path / "s", samples=4, seed=1, shard=Shard(index, 3))
        assert part.complete == (index == 1)
    assert read_results(tmp_path / "s").lines == whole.lines
    names = {path.name for path in (tmp_path / "s").glob("*.jsonl")}
    assert names == {f"results-{index}-of-3.jsonl" for index in range(3)}
    path = tmp_path / "batch" / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-200])
    assert not read_results(tmp_path / "batch").complete
    again = run(lm, sampler, small(), tmp_path / "batch", samples=4, seed=1)
    assert again.lines == whole.lines
    assert len(path.read_text().splitlines()) == 24
    assert run(lm, sampler, small(), tmp_path / "other", samples=4, seed=2).lines != whole.lines


def test_what_was_drawn_is_kept_when_it_is_stopped(lm, sampler, tmp_path, monkeypatch):
    import sake_jax.evaluate.run as module

    calls, real = [], sj.generate

    def stopping(*args, **options):
        calls.append(options["names"])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(module.sj, "generate", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(lm, sampler, small(), tmp_path, samples=2, batch=2)
    assert len(read_results(tmp_path).lines) == 2
    monkeypatch.undo()
    found = run(lm, sampler, small(), tmp_path, samples=2, batch=2)
    assert found.complete


def test_a_moment_of_a_full_disk_leaves_whole_lines(lm, sampler, tmp_path, monkeypatch):
    """The batch that did not fit is written when the run ends, if there is room again."""
    expected = run(lm, sampler, small(), tmp_path / "whole", samples=2, batch=4)
    real, calls, broken = journal.write_all, [], set()

    def full(file, content):
        calls.append(content)
        if len(calls) in broken:
            real(file, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, content)

    monkeypatch.setattr(journal, "write_all", full)
    for name, times in (("moment", {2}), ("longer", {2, 3})):
        calls.clear()
        broken.clear()
        broken |= times
        with pytest.raises(OSError, match="No space left"):
            run(lm, sampler, small(), tmp_path / name, samples=2, batch=4)
        content = (tmp_path / name / "results.jsonl").read_text()
        assert content.endswith("}\n")
        assert content.count("\n") == {"moment": 8, "longer": 4}[name]
        assert (
            run(lm, sampler, small(), tmp_path / name, samples=2, batch=4).lines == expected.lines
        )


def test_results_without_settings_belong_to_nobody(lm, sampler, tmp_path):
    run(lm, sampler, small(), tmp_path, samples=2)
    (tmp_path / "settings.json").unlink()
    with pytest.raises(ValueError, match=r"got results.jsonl without settings.json; bring that"):
        run(lm, sampler, small(), tmp_path, samples=2, seed=1)


def test_one_process_writes_a_shard(lm, sampler, tmp_path):
    run(lm, sampler, small(), tmp_path, samples=2)
    with written_by_another(tmp_path / "results.jsonl"):
        with pytest.raises(ValueError, match=r"results.jsonl must have one writer at a time"):
            run(lm, sampler, small(), tmp_path, samples=2)
        run(lm, sampler, small(), tmp_path, samples=2, shard=Shard(0, 2))  # in a file of its own


def test_another_run_is_refused(lm, sampler, tmp_path):
    run(lm, sampler, small(), tmp_path, samples=1)
    for changed in ({"samples": 2}, {"seed": 5}, {"about": {"name": "other"}}):
        with pytest.raises(ValueError, match="must be new or hold a run with the same settings"):
            run(lm, sampler, small(), tmp_path, **{"samples": 1} | changed)
    with pytest.raises(ValueError, match=r"got other task\."):
        run(lm, sampler, small(5), tmp_path, samples=1)
    with pytest.raises(ValueError, match="a shard's index must be at most 1"):
        Shard(2, 2)
    with pytest.raises(ValueError, match="must hold a run of sake-jax eval"):
        read_results(tmp_path / "nothing")


def test_shards_of_different_runs_are_noticed(lm, sampler, tmp_path):
    run(lm, sampler, small(), tmp_path, samples=1)
    (line,) = (tmp_path / "results.jsonl").read_text().splitlines()[:1]
    stranger = json.loads(line) | {"text": "another"}
    (tmp_path / "results-1-of-2.jsonl").write_text(json.dumps(stranger) + "\n")
    with pytest.raises(ValueError, match="must agree"):
        read_results(tmp_path)


def test_long_prompts_lose_their_beginnings(tmp_path):
    lm = sj.load("tinystories")
    (tmp_path / "prompts.txt").write_text("the dog ran. " * 60 + "\nthe cat\n")
    task = open_ended(tmp_path / "prompts.txt", name="story", stop=["\n"])
    sampler = Request(length=8, steps=2).build(lm)
    with pytest.warns(UserWarning, match="1 of 2 prompts are longer"):
        found = run(lm, sampler, task, tmp_path / "run", samples=2, progress=True)
    cuts = [lines[0]["cut"] for lines in found.lines.values()]
    assert cuts[0] > 0 == cuts[1]
    text = report([found], tmp_path, judge=sj.metrics.load_judge("tinystories-causal"))
    assert "perplexity" in text
    assert "## how different" in text
    assert not (tmp_path / "passes.png").exists()
    with pytest.raises(ValueError, match=r"a prompt and 128 columns must fit"):
        run(lm, Request(length=128).build(lm), task, tmp_path / "wide")


def test_chats_are_asked_by_the_template(tmp_path):
    lm = dataclasses.replace(sj.load("tinystories"))
    turn = "{% for turn in messages %}[{{ turn.content }}]{% endfor %}"
    lm.tokenizer.chat_template = turn + "{% if add_generation_prompt %}>{% endif %}"
    task, sampler = small(2), Request(length=4, steps=1).build(lm)
    plain = run(lm, sampler, task, tmp_path / "plain")
    chat = run(lm, sampler, task, tmp_path / "chat", chat=True)
    assert plain.texts != chat.texts
    key = jax.random.key(0)
    ids = lm.tokenizer("[]>", add_special_tokens=False)["input_ids"]
    wanted = sj.generate(lm, sampler, [ids], key=key, names=[0]).texts[0]
    assert chat.texts[0] == wanted


def test_evaluations_are_counted(lm, sampler, tmp_path):
    found = run(lm, sampler, small(), tmp_path, samples=2)
    assert np.array_equal(found.evaluations, np.ones((6, 2)))
    with pytest.raises(ValueError, match="rule must be one of 'same'"):
        found.correct("tests")


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say(lm, sampler, tmp_path):
    """Of forty runs, 95 % intervals should miss in two; in seven or more by a chance of .3 %."""
    task, held = gsm8k(records(tmp_path, 100), shots=0), {"pass": 0, "vote": 0}
    for seed in range(40):
        found = run(lm, sampler, task, tmp_path / str(seed), samples=4, batch=400, seed=100 + seed)
        passes, voted = pass_rate(found.correct("strict-match"), 2), vote(found, "strict-match", 3)
        held["pass"] += passes.low <= 1 - (1 - CHANCES["#### 4"]) ** 2 <= passes.high
        held["vote"] += voted.low <= votes_right(3) <= voted.high
    assert min(held.values()) > 33
