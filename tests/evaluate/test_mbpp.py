"""MBPP: our own small problems, the stock task with its examples, and the canonical solutions."""

import ast
import json

import pytest

from sake_jax.evaluate import mbpp


def record(number: int, name: str, body: str, *tests: str, setup: str = "") -> dict:
    return {
        "task_id": number,
        "text": f"Write {name}.",
        "code": f"def {name}(x):\r\n  {body}",
        "test_list": [f"assert {name}({test}" for test in tests],
        "test_setup_code": setup,
    }


OWN = [
    record(1, "one", "return 1", "0) == 1", "1) == 1", "2) == 1"),
    record(2, "two", "return 2", "0) == 2", "1) == 2", "2) == 2"),
    record(3, "three", "return 3", "0) == 3", "1) == 3", "2) == 3"),
    record(4, "four", "return 4", "0) == 4", "1) == 4", "2) == 4"),
    record(11, "half", "return x / 2", "4) == 2", "2) == 1", "0) == 0", "1) == 'never run'"),
    record(12, "same", "return x", "a) == 5", "b) == 6", "7) == 7", setup="a = 5\nb = 6"),
    record(511, "late", "return x", "1) == 1", "1) == 1", "1) == 1"),
]
SHOT = """You are an expert Python programmer, and here is your task: Write two. \
Your code should pass these tests:

assert two(0) == 2
assert two(1) == 2
assert two(2) == 2
[BEGIN]
def two(x):\r
  return 2
[DONE]

"""
QUESTION = """You are an expert Python programmer, and here is your task: Write half. \
Your code should pass these tests:

assert half(4) == 2
assert half(2) == 1
assert half(0) == 0
[BEGIN]
"""


@pytest.fixture
def path(tmp_path):
    return written(tmp_path / "own.jsonl", OWN)


def written(path, some):
    path.write_text("\n".join(map(json.dumps, some)))
    return path


def names(task) -> list[str]:
    return [problem.name for problem in task.problems]


def test_problems_are_the_test_split_and_examples_come_from_the_same_file(path, here):
    task = mbpp(path, execute=here)
    assert names(task) == ["MBPP/11", "MBPP/12"]
    assert task.stop == ("[DONE]",)
    prompt = task.problems[0].prompt
    assert prompt.startswith(SHOT)
    assert prompt.endswith("return 4\n[DONE]\n\n" + QUESTION)
    order = [prompt.index(f"def {name}(x)") for name in ("two", "three", "four")]
    assert order == sorted(order)
    assert "Write one." not in prompt


def test_examples_from_another_file(tmp_path, path, here):
    alone = written(tmp_path / "test.jsonl", OWN[4:])
    shots = written(tmp_path / "shots.jsonl", OWN[3::-1])
    assert mbpp(alone, examples=shots, execute=here).problems == mbpp(path, execute=here).problems
    with pytest.raises(ValueError, match=r"without \[2, 3, 4\]'; name mbpp.jsonl with --examples"):
        mbpp(alone)


def test_the_sanitized_edition(tmp_path, path, here):
    """The same in other words: `prompt` for `text`, and imports for the code before the tests."""
    sanitized = [
        {"prompt" if key == "text" else key: value for key, value in record.items()}
        for record in OWN
    ]
    for record in sanitized:
        record["test_imports"] = record.pop("test_setup_code", "").splitlines()
    file = tmp_path / "sanitized-mbpp.json"
    file.write_text(json.dumps(sanitized))
    ours, full = mbpp(file, execute=here), mbpp(path, execute=here)
    assert [p.prompt for p in ours.problems] == [p.prompt for p in full.problems]
    (verdict,) = ours.judge([(ours.problems[1], OWN[5]["code"])])
    assert verdict.correct["tests"], "it needs what is imported"
    file.write_text(json.dumps([{"task_id": 11, "code": "", "test_list": []}]))
    with pytest.raises(ValueError, match="problem 11 must say what is asked"):
        mbpp(file)


def test_fewer_examples_other_problems_and_limits(tmp_path, path, here):
    assert mbpp(path, shots=1, execute=here).problems[0].prompt == SHOT + QUESTION
    alone = written(tmp_path / "test.jsonl", OWN[4:])
    assert mbpp(alone, shots=0, execute=here).problems[0].prompt == QUESTION, "no examples needed"
    assert names(mbpp(path, ids=[511, 1])) == ["MBPP/1", "MBPP/511"], "in the file's order"
    assert names(mbpp(path, limit=1)) == ["MBPP/11"]
    with pytest.raises(ValueError, match="shots must be at most 3"):
        mbpp(path, shots=4)
    with pytest.raises(ValueError, match="a task must have problems"):
        mbpp(path, ids=[13])


def test_completions_are_cut_and_run_with_the_three_tests_that_are_shown(path, here):
    task = mbpp(path, execute=here)
    half, same = task.problems
    found = task.judge(
        [
            (half, "def half(x): return x / 2\n[DONE]\nand more"),
            (half, "def half(x): return x // 2"),
            (half, "def half(x): return x"),
            (same, OWN[5]["code"]),
        ]
    )
    assert [verdict.correct["tests"] for verdict in found] == [True, True, False, True]
    assert found[0].answer["tests"] == "def half(x): return x / 2\n"
    assert found[2].why == "AssertionError"


def test_setup_code_is_left_out_on_request(path, here):
    task = mbpp(path, setup=False, execute=here)
    (verdict,) = task.judge([(task.problems[1], OWN[5]["code"])])
    assert not verdict.correct["tests"]
    assert verdict.why == "NameError"


def test_a_problem_with_too_few_tests(tmp_path, path):
    short = [*OWN[:4], OWN[4] | {"test_list": ["assert True"]}]
    with pytest.raises(ValueError, match="problem 11 must have three tests"):
        mbpp(written(tmp_path / "short.jsonl", short))


def read(path) -> list[dict]:
    return [json.loads(line) for line in path.open()]


@pytest.mark.slow
def test_prompts_stops_and_programs_are_the_stock_tasks(real, stock, programs_of, noted):
    test = real / "mbpp_test_11-510.jsonl"
    ours = mbpp(test, examples=real / "mbpp.jsonl", setup=False, execute=noted)
    assert ours.problems == mbpp(real / "mbpp.jsonl").problems
    theirs = stock("mbpp", test=read(test))
    assert [request.args[0] for request in theirs.instances] == [p.prompt for p in ours.problems]
    assert all(request.args[1]["until"] == list(ours.stop) for request in theirs.instances)
    completions = [problem.data["code"] for problem in ours.problems]
    ours.judge(list(zip(ours.problems, completions, strict=True)))
    assert noted.programs == programs_of(theirs, completions)


@pytest.mark.slow
def test_fewer_examples_are_those_of_the_stock_task(real, stock):
    ours = mbpp(real / "mbpp.jsonl", shots=2, limit=3)
    theirs = stock("mbpp", test=read(real / "mbpp_test_11-510.jsonl"), options={"num_fewshot": 2})
    assert [p.prompt for p in ours.problems] == [r.args[0] for r in theirs.instances[:3]]


def emptied(code: str) -> str:
    """The code with every function's body replaced by pass."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Pass()]
    return ast.unparse(tree)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid escape sequence")  # in the solutions themselves
def test_canonical_solutions_pass_and_empty_ones_fail(real, patient):
    task = mbpp(real / "mbpp.jsonl", execute=patient)
    assert len(task.problems) == 500
    for change, expected in ((lambda code: code + "\n[DONE]", True), (emptied, False)):
        verdicts = task.judge([(p, change(p.data["code"])) for p in task.problems])
        pairs = zip(task.problems, verdicts, strict=True)
        other = [(p.name, v.why) for p, v in pairs if v.correct["tests"] != expected]
        assert not other, other[:5]
