"""The real data sets and the stock tasks of lm-evaluation-harness, where they are at hand."""

import functools
import importlib.util
import os
from pathlib import Path

import pytest

from sake_jax.evaluate.sandbox import Limits, Outcome, run_programs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder of the real data sets."""
    folder = Path(os.environ.get("SAKE_JAX_DATA", ROOT / ".." / "shared" / "data")) / "eval"
    if not folder.is_dir():
        pytest.skip("the real data sets are not here: name their folder by SAKE_JAX_DATA")
    return folder


@pytest.fixture
def patient():
    """Runs programs with time to spare: one canonical solution computes for seconds."""
    return functools.partial(run_programs, limits=Limits(seconds=60.0))


@pytest.fixture
def here():
    """Runs the tests' own programs in this process."""

    def execute(programs):
        def run(program):
            try:
                exec(program, {})
            except Exception as error:
                return Outcome(False, type(error).__name__, 0.0)
            return Outcome(True, "passed", 0.0)

        return [run(program) for program in programs]

    return execute


class Noted:
    """Runs nothing, and notes what it should run."""

    def __init__(self):
        self.programs = []

    def __call__(self, programs):
        self.programs += programs
        return [Outcome(False, "not run", 0.0) for _ in programs]


@pytest.fixture
def noted() -> Noted:
    return Noted()


class Asked:
    """Stands for the metric code_eval, which would come from the hub: notes what it should run."""

    programs: tuple[str, ...] = ()

    @classmethod
    def compute(cls, references, predictions, k):
        pairs = zip(references, predictions, strict=True)
        # The metric's program: a candidate, a line break, and the tests.
        cls.programs += tuple(f"{one}\n{tests}" for tests, some in pairs for one in some)
        return {f"pass@{number}": 0.0 for number in k}, {}


@pytest.fixture
def stock(monkeypatch):
    """`stock("mbpp", test=records)`: a task of the harness as it ships, on these records."""
    datasets = pytest.importorskip("datasets")
    evaluate = pytest.importorskip("evaluate")
    pytest.importorskip("lm_eval")
    monkeypatch.setattr(evaluate, "load", lambda name: Asked)
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks._yaml_loader import load_yaml

    def build(name: str, *, seed: int = 1234, options=None, **splits):
        config = load_yaml(stock_file(name)) | (options or {})
        tables = {split: datasets.Dataset.from_list(rows) for split, rows in splits.items()}
        config["custom_dataset"] = lambda **_: datasets.DatasetDict(tables)
        task = ConfigurableTask(config=config)
        task.set_fewshot_seed(seed)  # as its evaluator does
        task.build_all_requests()
        return task

    return build


@pytest.fixture
def programs_of():
    """What a stock code task runs for completions, one for each problem."""

    def programs(task, completions) -> list[str]:
        Asked.programs = ()
        for request, text in zip(task.instances, completions, strict=True):
            request.resps = [text]
        task.apply_filters()
        for request in task.instances:
            (filtered,) = request.filtered_resps.values()
            task.process_results(request.doc, [filtered])
        return list(Asked.programs)

    return programs


def stock_file(name: str) -> Path:
    """The harness's own definition of a task."""
    spec = importlib.util.find_spec("lm_eval")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("lm_eval is not installed")
    return Path(spec.submodule_search_locations[0]) / "tasks" / name / f"{name}.yaml"


@pytest.fixture
def stock_definition():
    """The same, for those that can be read without running anything."""
    return stock_file
