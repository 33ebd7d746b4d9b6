"""Canonical solutions of HumanEval and MBPP pass, and empty ones do not."""

import ast
import json
import os
import warnings
from pathlib import Path

import pytest

from sake_jax.evaluate.sandbox import Limits, run_programs
from sake_jax.evaluate.sandbox.containment import containment

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("SAKE_JAX_DATA", ROOT.parent / "shared" / "data")) / "eval"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="no data: set SAKE_JAX_DATA"),
    pytest.mark.skipif(containment().refused is not None, reason="no namespaces"),
]


def read(name):
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def humaneval(problem, body):
    check = f"check({problem['entry_point']})"
    return "\n".join([problem["prompt"] + body, problem["test"], check])


def mbpp(problem, code):
    return "\n".join([code, problem["test_setup_code"], *problem["test_list"]])


def emptied(code):
    """The same functions and classes, with nothing in them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes that Python will not take forever
        tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Pass()]
    return ast.unparse(tree)


def failures(programs, names):
    # One solution of MBPP takes seconds of processor time, and machines may be busy.
    found = zip(names, run_programs(programs, limits=Limits(seconds=60.0)), strict=True)
    return {name: outcome.why for name, outcome in found if not outcome.passed}


def test_humaneval():
    problems = read("HumanEval.jsonl")
    names = [problem["task_id"] for problem in problems]
    assert len(names) == 164
    solved = [humaneval(problem, problem["canonical_solution"]) for problem in problems]
    assert failures(solved, names) == {}
    empty = [humaneval(problem, "    pass\n") for problem in problems]
    assert len(failures(empty, names)) == 164


def test_mbpp():
    problems = read("mbpp_test_11-510.jsonl")
    names = [problem["task_id"] for problem in problems]
    assert len(names) == 500
    assert failures([mbpp(problem, problem["code"]) for problem in problems], names) == {}
    empty = [mbpp(problem, emptied(problem["code"])) for problem in problems]
    assert len(failures(empty, names)) == 500
