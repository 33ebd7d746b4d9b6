"""Solve: settings are chosen on development problems by a rule that is told, reported on others."""

import dataclasses

import jax
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.evaluate import puzzle
from sake_jax.experiments.solve import QUICK_METHODS, ROWS, Bench, _scores, grid, solve, trained
from sake_jax.experiments.solve_methods import BASELINE, METHODS, ORDERS
from sake_jax.experiments.solve_report import Reported, choose, difference, report
from sake_jax.experiments.study import Study
from sake_jax.training import Trainer, read


def test_methods_have_as_many_settings_and_every_order():
    assert {len(method.settings) for method in METHODS.values()} == {4}
    assert {tuple(method.orders) for method in METHODS.values()} == {tuple(ORDERS)}
    assert set(QUICK_METHODS) <= set(METHODS)


@pytest.fixture
def study(tmp_path):
    return Study(tmp_path, {"experiment": "solve"}, progress=False)


SOLVE = {"task": "countdown-3", "weights": 1, "aim": "solve", "samples": 100}
VOTE = SOLVE | {"aim": "vote"}


def add(study, method, setting, right, about=SOLVE, split="development", seed=0, vote=0):
    cell = about | {"method": method, "order": "random", "setting": list(setting)}
    result = {"right": [right], "vote": [[vote] * len(right)]}
    result |= {"different": [[min(1, n) for n in right]], "evaluations": 8}
    study.measure([[cell | {"split": split, "seed": seed}]], lambda group: [result])


def test_a_setting_solves_most_at_no_more_than_a_point_of_pass_at_1(study):
    add(study, BASELINE, (0, 0.3), [100, 100, 0, 0])  # two solved
    add(study, BASELINE, (0, 1.0), [90, 90, 20, 0])  # three solved: chosen, with 200 right
    add(study, "ODD", (4, 0.3), [90, 90, 10, 9])  # four solved, 199 right: fair
    add(study, "ODD", (16, 0.3), [10, 10, 10, 10])  # four solved, but seldom
    assert choose(study, SOLVE, BASELINE)["setting"] == [0, 1.0]
    assert choose(study, SOLVE, "ODD")["setting"] == [4, 0.3]


def test_without_a_fair_setting_it_is_the_one_that_is_right_most_often(study):
    add(study, BASELINE, (0, 0.3), [100, 100, 100, 0])
    add(study, "ODD", (4, 0.3), [1, 1, 1, 1])
    add(study, "ODD", (16, 0.3), [50, 50, 0, 0])
    assert choose(study, SOLVE, "ODD")["setting"] == [16, 0.3]


def test_votes_are_chosen_by_votes(study):
    add(study, "ODD", (4, 0.3), [5, 0], about=VOTE, vote=0)
    add(study, "ODD", (16, 0.3), [1, 1], about=VOTE, vote=1)
    add(study, "ODD", (4, 0.7), [0, 0], about=VOTE | {"weights": 2}, vote=1)  # of another model
    assert choose(study, VOTE, "ODD")["setting"] == [16, 0.3]


def test_passes_are_over_groups_and_seeds_and_differences_by_problem(study):
    four = SOLVE | {"samples": 4}
    add(study, BASELINE, (0, 0.3), [1, 1], about=four)
    for seed, right in enumerate([[4, 0], [0, 2]]):
        add(study, BASELINE, (0, 0.3), right, about=four, split="test", seed=seed)
    tested = Reported(study, four, BASELINE)
    np.testing.assert_allclose(tested.passes(1), [0.5, 0.25])
    np.testing.assert_allclose(tested.passes(4), [0.5, 0.5])
    assert tested.name == "T = 0.3, random"
    gained = difference(np.array([0.5, 0.9]), np.array([0.4, 0.8]))
    np.testing.assert_allclose(gained, [0.1, 0.1, 0.1])


def test_the_report_names_what_development_problems_choose_and_compares_it(study):
    for about in (SOLVE, VOTE):
        for split in ("development", "test"):
            add(study, BASELINE, (0, 0.3), [100, 0, 0, 0], about=about, split=split)
            add(study, "ODD", (4, 0.3), [99, 1, 0, 0], about=about, split=split)
            add(study, "DPP", (2, 0.3), [50, 25, 25, 0], about=about, split=split, vote=1)
    report(study, [SOLVE, VOTE], [BASELINE, "ODD", "DPP"], quick=False)
    told = (study.folder / "table.md").read_text()
    assert "Development problems choose 'DPP'" in told
    assert "| ODD" in told.split("DPP against")[1]
    assert "vote@100 gained" in told
    assert (study.folder / "countdown-3-methods.png").stat().st_size > 10_000


def test_scores_count_right_ones_different_ones_and_votes():
    task = puzzle("small", limit=2, game=_Parrot())
    scores = _scores(task, [[["yes", "yes", "Yes", "no", "no"], ["no", "no", "no", "yes", ""]]])
    assert scores["right"] == [[3, 1]]
    assert scores["different"] == [[2, 1]]
    assert scores["vote"] == [[1, 0]]


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
    bench = Bench("countdown-3", sj.load(trained(models, "countdown-3")), {"development": 2})
    about = bench.about | {"aim": "solve", "samples": 4}
    cells = {cell["order"]: about | cell for cell in grid(name, quick=False)}
    assert set(cells) == set(ORDERS)
    for result in bench.measure(list(cells.values())):
        assert np.shape(result["right"]) == (1, 2)
        assert result["evaluations"] >= 8


def test_selection_writes_whole_answers(models):
    bench = Bench("countdown-3", sj.load(trained(models, "countdown-3")), {"development": 2})
    method, task = METHODS["D5P4"], bench.tasks["development"]
    sampler = method.sampler(bench.lm, 8, method.settings[0], "random")
    texts = bench._selected(method.expand, 1.0)(task, sampler, jax.random.key(0), 4)
    assert [len(text.split()) for row in texts for text in row] == [8] * 8
    assert method.evaluations(8) == 15
    assert ROWS % 32 == 0


def test_a_model_of_ones_own_plays_one_task(tmp_path):
    words = sj.load("countdown-3").tokenizer
    table = jax.random.normal(jax.random.key(0), (len(words), len(words)))
    own = sj.wrap(
        lambda table, tokens: table[tokens],
        table,
        tokenizer=words,
        mask_id=len(words) - 1,
        context=16,
    )
    bench = Bench("countdown-3", own, {"development": 2})
    cell = grid(BASELINE, quick=True)[0]
    (result,) = bench.measure([bench.about | cell | {"aim": "solve", "samples": 2}])
    assert np.shape(result["right"]) == (1, 2)
    with pytest.raises(ValueError, match=r"must play one task, .*name it: tasks="):
        solve(tmp_path, model=own, progress=False)


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
        2 * len(grid(method, quick=True)) for method in QUICK_METHODS
    )
    solve(tmp_path, quick=True, progress=False, model=models)
    assert (tmp_path / "results.jsonl").read_bytes() == before


def test_a_model_that_was_not_trained_is_asked_for(tmp_path):
    with pytest.raises(ValueError, match=r"needs a model .* sake-jax train products"):
        trained(tmp_path, "products")
    with pytest.raises(ValueError, match="task must be one of"):
        solve(tmp_path, tasks="chess", progress=False)
