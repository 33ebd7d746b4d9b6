"""Prompts without right answers, from all the files they come in."""

import json

import pytest

from sake_jax.evaluate import Verdict, open_ended

PROMPTS = ["Once upon a time there was", "Tim said:\n\nI want a"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", "\n".join(json.dumps({"prompt": prompt}) for prompt in PROMPTS)),
        ("a.json", json.dumps(PROMPTS)),
        ("a.yaml", "---\n- |-\n  Once upon a time there was\n- |-\n  Tim said:\n\n  I want a\n"),
    ],
)
def test_prompts_of_every_kind_of_file(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    task = open_ended(tmp_path / name)
    assert [problem.prompt for problem in task.problems] == PROMPTS
    assert [problem.name for problem in task.problems] == ["prompt/0", "prompt/1"]
    assert (task.name, task.stop, task.rules) == ("open-ended", (), ())


def test_lines_are_prompts(tmp_path):
    (tmp_path / "a.txt").write_text("Name a colour.\nName a town.\n")
    task = open_ended(tmp_path / "a.txt", name="brainstorm", stop=["\n\n"], limit=1)
    assert [problem.prompt for problem in task.problems] == ["Name a colour."]
    assert (task.name, task.stop) == ("brainstorm", ("\n\n",))


def test_records_have_names_and_other_fields(tmp_path):
    lines = [{"question_id": 7, "turns": ["Name a fish.", "Another."], "category": "animals"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (problem,) = open_ended(tmp_path / "a.jsonl", field="turns").problems
    assert (problem.name, problem.prompt) == ("7", "Name a fish.")
    assert problem.data["category"] == "animals"
    with pytest.raises(ValueError, match="line 1 must have 'prompt'"):
        open_ended(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match="must hold a text, got 7; name another field"):
        open_ended(tmp_path / "a.jsonl", field="question_id")


def test_nothing_is_right_or_wrong(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(PROMPTS))
    task = open_ended(tmp_path / "a.json")
    answers = [(problem, "anything") for problem in task.problems]
    assert task.judge(answers) == [Verdict({}, {}, "")] * 2


def test_a_single_stop_string(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(PROMPTS))
    with pytest.raises(ValueError, match="put it in a list"):
        open_ended(tmp_path / "a.json", stop="\n\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "field"),
    [
        ("tinystories_eval_prompts.yaml", 44, "prompt"),
        ("noveltybench_curated.jsonl", 100, "prompt"),
        ("mt_bench_question.jsonl", 80, "turns"),
    ],
)
def test_the_real_prompts(real, name, count, field):
    task = open_ended(real / "prompts" / name, field=field)
    assert len(task.problems) == count
    assert all(problem.prompt for problem in task.problems)
