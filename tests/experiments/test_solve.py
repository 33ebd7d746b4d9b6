"""Solve: settings are chosen on development problems by a rule that is told, reported on others."""

import dataclasses

import numpy as np
import pytest

import sake_jax as sj
from sake_jax.evaluate import puzzle
from sake_jax.experiments.solve import PROMPTS, QUICK_METHODS, _scores, grid, solve, trained
from sake_jax.experiments.solve_methods import BASELINE, METHODS, ORDERS
from sake_jax.experiments.solve_report import Reported, choose, difference
from sake_jax.experiments.study import Study
from sake_jax.training import Trainer, read


def test_methods_have_as_many_settings_and_every_order():
    assert {len(method.settings) for method in METHODS.values()} == {4}
    assert {tuple(method.orders) for method in METHODS.values()} == {tuple(ORDERS)}
    assert set(QUICK_METHODS) <= set(METHODS)


@pytest.fixture
def study(tmp_path):
    return Study(tmp_path, {"experiment": "solve"}, progress=False)


def add(study, method, setting, right, split="development", seed=0, order="random", vote=0):
    cell = {"task": "countdown-3", "method": method, "order": order, "setting": list(setting)}
    result = {"right": [right], "vote 5": [[vote] * len(right)], "vote all": [[1] * len(right)]}
    result |= {"different": [[min(1, n) for n in right]], "evaluations": 8}
    study.measure([[cell | {"split": split, "seed": seed}]], lambda group: [result])


def test_a_setting_solves_most_at_no_more_than_a_point_of_pass_at_1(study):
    add(study, BASELINE, (0, 0.3), [100, 100, 0, 0])  # two solved
    add(study, BASELINE, (0, 1.0), [90, 90, 20, 0])  # three solved: chosen, with 200 right
    add(study, "ODD", (4, 0.3), [90, 90, 10, 9], vote=1)  # four solved, 199 right: fair
    add(study, "ODD", (16, 0.3), [10, 10, 10, 10])  # four solved, but seldom
    assert choose(study, "countdown-3", BASELINE)["solve"]["setting"] == [0, 1.0]
    chosen = choose(study, "countdown-3", "ODD")
    assert chosen["solve"]["setting"] == chosen["vote"]["setting"] == [4, 0.3]


def test_without_a_fair_setting_it_is_the_one_that_is_right_most_often(study):
    add(study, BASELINE, (0, 0.3), [100, 100, 100, 0])
    add(study, "ODD", (4, 0.3), [1, 1, 1, 1], vote=1)
    add(study, "ODD", (16, 0.3), [50, 50, 0, 0])
    chosen = choose(study, "countdown-3", "ODD")
    assert chosen["solve"]["setting"] == [16, 0.3]
    assert chosen["vote"]["setting"] == [4, 0.3]


def test_passes_are_over_groups_and_seeds_and_differences_by_problem(study):
    for seed, right in enumerate([[4, 0], [0, 2]]):
        add(study, BASELINE, (0, 0.3), right, split="test", seed=seed)
    cell = {"task": "countdown-3", "method": BASELINE, "order": "random", "setting": [0, 0.3]}
    tested = Reported(study, cell, samples=4)
    np.testing.assert_allclose(tested.passes(1), [0.5, 0.25])
    np.testing.assert_allclose(tested.passes(4), [0.5, 0.5])
    assert tested.name == "T = 0.3, random"
    gained = difference(np.array([0.5, 0.9]), np.array([0.4, 0.8]))
    np.testing.assert_allclose(gained, [0.1, 0.1, 0.1])


def test_scores_count_right_ones_different_ones_and_votes():
    task = puzzle("small", limit=2, game=_Parrot())
    scores = _scores(task, [[["yes", "yes", "Yes", "no", "no"], ["no", "no", "no", "yes", ""]]])
    assert scores["right"] == [[3, 1]]
    assert scores["different"] == [[2, 1]]
    assert scores["vote 5"] == [[1, 0]]


class _Parrot:
    """Everything that says yes is right."""

    answer_words = 1

    def questions(self, split, count, seed=0):
        return [f"{split} {at}" for at in range(count)]

    def check(self, prompt, answer):
        return ("" if answer.lower() == "yes" else "no"), answer


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a model for countdown-3 that has hardly learned anything."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = read("countdown-3")
    short = dataclasses.replace(recipe.training, steps=2, batch=4, evaluate=2, save=2)
    trainer = Trainer(dataclasses.replace(recipe, training=short), folder / "countdown-3")
    trainer.train()
    trainer.publish()
    return folder


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.slow
def test_every_method_writes_answers(name, models):
    method, lm = METHODS[name], sj.load(trained(models, "countdown-3"))
    for order in ORDERS:
        sampler = method.sampler(lm, 8, method.settings[0], order)
        prompts = [problem.prompt for problem in puzzle("countdown-3", limit=2).problems]
        out = sj.generate(lm, sampler, prompts, samples=4, batch=4 * PROMPTS)
        assert all(len(text.split()) == 8 for row in out.texts for text in row)


@pytest.mark.slow
def test_a_quick_run_makes_a_table_and_figures_and_goes_on(tmp_path, models):
    study = solve(tmp_path, quick=True, progress=False, model=models)
    assert "claims nothing" in (tmp_path / "table.md").read_text()
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "countdown-3-curves.png",
        "countdown-3-methods.png",
    }
    before = (tmp_path / "results.jsonl").read_bytes()
    assert len(study.rows(split="development")) == sum(
        len(grid("countdown-3", method, quick=True)) for method in QUICK_METHODS
    )
    solve(tmp_path, quick=True, progress=False, model=models)
    assert (tmp_path / "results.jsonl").read_bytes() == before


def test_a_model_that_was_not_trained_is_asked_for(tmp_path):
    with pytest.raises(ValueError, match=r"needs a model .* sake-jax train products"):
        trained(tmp_path, "products")
    with pytest.raises(ValueError, match="task must be one of"):
        solve(tmp_path, tasks="chess", progress=False)
