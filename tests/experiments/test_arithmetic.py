"""Arithmetic series: the model, one program for every method, and an honest report."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.experiments import arithmetic as module
from sake_jax.experiments import series, series_methods, series_report
from sake_jax.experiments.arithmetic import METHODS, QUICK, arithmetic
from sake_jax.experiments.series_methods import FORMS, ORDERS, SeriesSetting
from sake_jax.experiments.study import Study
from sake_jax.models import init
from sake_jax.training import Trainer, Training

DENOISER = series.make_denoiser(
    series.make_recipe(width=QUICK["width"], layers=QUICK["layers"], heads=QUICK["heads"])
)
BOUNDED = f"across samples, KL ≤ {series_methods.KL_BUDGET}"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def study(tmp_path_factory, cache):
    folder = tmp_path_factory.mktemp("arithmetic")
    return arithmetic(folder, quick=True, progress=False, models=["tied"], cache=cache)


def without_seconds(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_the_report(study, cache):
    assert {path.name for path in study.folder.glob("*.png")} == {"frontier-tied.png"}
    assert len(list(cache.glob("series-tied-*"))) == 1
    text = (study.folder / "table.md").read_text()
    for order in ORDERS:
        assert f"## Tied model, {order} order" in text
    assert "Untied" not in text
    assert text.count("| repulsion across samples | γ = 1, T = 2.4 |") == 1
    assert "seeds that choose, 0; all else is shown on others, 1." in text
    assert "**This is a quick run" in text
    assert "Hypervolume of the best form" not in text, "it claims nothing"


def test_a_whole_run_has_verdicts(study):
    """By the quick run's rows: the words are the same."""
    series_report.write(study, ["tied"], METHODS, 1, QUICK, quick=False)
    text = (study.folder / "table.md").read_text()
    for order in ORDERS:
        assert f"- tied model, {order} order: hypervolume" in text
    assert "## Hypervolume of the best form" in text
    assert "quick" not in text
    series_report.write(study, ["tied"], METHODS, 1, QUICK, quick=True)


def test_every_method_is_measured_with_six_settings(study):
    for order in ORDERS:
        for name, method in METHODS.items():
            rows = study.rows(order=order, method=name, seed=1)
            assert len({row["setting"] for row in rows}) == len(rows) == 6
            assert all(("covariance" in row) == (method.form != "none") for row in rows)


def test_a_stopped_run_goes_on_with_the_same_results(study, cache, tmp_path):
    """Also in the middle of a method's settings."""
    folder = tmp_path / "stopped"
    shutil.copytree(study.folder, folder)
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:-9]) + lines[-9][:20])
    (folder / "table.md").unlink()
    again = arithmetic(folder, quick=True, progress=False, models=["tied"], cache=cache)
    assert without_seconds(again.rows()) == without_seconds(study.rows())
    assert (folder / "table.md").read_text() == (study.folder / "table.md").read_text()


@pytest.mark.parametrize(
    ("form", "order", "guidance"),
    [
        ("none", "random", sj.identity()),
        (
            BOUNDED,
            "confidence",
            sj.sake(2.0, scope="batch", self_term=0.0, kl_budget=series_methods.KL_BUDGET),
        ),
    ],
)
def test_one_program_draws_as_the_library_does(form, order, guidance):
    params = init(DENOISER.config, jax.random.key(3))
    settings = [
        SeriesSetting(1.0, 1.0),
        SeriesSetting(0.7, 2.0, 3.0, 0.9),
        *[SeriesSetting(1.0)] * 4,
    ]
    key, samples = jax.random.key(5), QUICK["samples"]
    drawn = series_methods.draw(DENOISER, params, form, order, settings, key, samples)[1]
    heat = sj.temperature(sj.piecewise({0.0: 3.0, 1 / series.LENGTH: 0.7}))
    sampler = sj.sampler(
        DENOISER,
        sj.blocks(series.LENGTH, series.LENGTH),
        guidance=guidance,
        draw=sj.chain(heat, sj.top_p(0.9)),
        reveal=getattr(sj.reveal, order),
        record="signal",
    )
    canvas = sj.canvas([[]], series.LENGTH, mask_id=series.MASK_ID, samples=samples)
    done, info = sj.run(sampler, params, key, canvas)
    np.testing.assert_array_equal(drawn.tokens, done.tokens)
    for signal in info.signals:
        assert drawn.covariance == pytest.approx(float(jnp.mean(signal.covariance)), rel=1e-3)
        assert drawn.rms == pytest.approx(float(jnp.mean(signal.rms)), rel=1e-3)
    assert (drawn.rms == 0) == (form == "none")


def test_quality_counts_distinct_series_among_series():
    common, rare = series.SERIES[0] + series.FIRST_ID, series.SERIES[-1] + series.FIRST_ID
    broken = np.asarray([1, 2, 3, 4, 5, 6, 7, 9], np.int32)
    outside = np.arange(series.MASK_ID - 7, series.MASK_ID + 1, dtype=np.int32)
    assert series.quality(np.stack([common, common, rare, broken])) == (0.75, 2 / 3)
    assert series.quality(np.stack([broken, outside])) == (0.0, 0.0)


def made_up(folder, seeds, validity):
    """A study whose every run has a validity of our choice, and the uniqueness 0.5."""
    study = Study(folder, {}, progress=False)

    def measured(group):
        return [
            {
                "validity": validity(cell["method"], cell["seed"]),
                "uniqueness": 0.5,
                "covariance": -0.1,
                "correlation": -0.3,
            }
            for cell in group
        ]

    study.measure(module._groups(["untied"], seeds), measured)
    return series_report.ModelRuns(study, METHODS, "untied", "confidence", seeds)


def test_the_best_is_chosen_on_one_set_of_seeds_and_reported_on_the_other(tmp_path):
    def validity(method, seed):
        early = {"repulsion": 0.9, "temperature": 0.7, "exact, predicted rows": 0.6}
        late = {"repulsion": 0.8, "temperature": 0.8, "exact, predicted rows": 1.0}
        return (early if seed < 2 else late).get(method, 0.55)

    found = made_up(tmp_path, 2, validity)
    assert found.best() == "repulsion"
    assert found.volumes("repulsion") == pytest.approx([0.15, 0.15])
    text = series_report.summary([found])
    assert "| untied | confidence | repulsion | 0.150 (0.150 to 0.150) | 0.150" in text
    assert "| top-p, two phases |" in text, "temperature is as good on the seeds reported"


def test_a_curve_has_the_settings_that_no_other_beats(tmp_path):
    found = made_up(tmp_path, 1, lambda method, seed: 0.7)
    rows = [row for row in found.rows.values() if row["method"] == "top-p" and row["seed"] == 1]
    places = [(0.9, 0.1), (0.8, 0.2), (0.7, 0.05), (0.6, 0.3), (0.9, 0.05), (0.5, 0.25)]
    for row, (validity, uniqueness) in zip(rows, places, strict=True):
        row |= {"validity": validity, "uniqueness": uniqueness}
    wanted = [[(0.6, 0.3)], [(0.8, 0.2)], [(0.9, 0.1)]]
    np.testing.assert_allclose(found.front("top-p"), wanted)
    np.testing.assert_allclose(found.gained("repulsion", "top-p"), [0.25])
    assert found.gained("top-p", "temperature").shape == (1,), "one setting has its validity"
    text = series_report.gained([found])
    assert "| untied | confidence | paper-literal | +0.000 (+0.000 to +0.000) | +0.250" in text


def test_nothing_is_said_of_validities_that_a_baseline_does_not_reach(tmp_path):
    found = made_up(tmp_path, 1, lambda method, seed: 0.9 if "top-p" in method else 0.7)
    assert found.gained("repulsion", "top-p").size == 0
    assert "| +0.000 (+0.000 to +0.000) | | +0.000" in series_report.gained([found])


@pytest.mark.parametrize(("own", "said"), [(0.9, "a gain over"), (0.6, "a loss against")])
def test_what_the_paper_literal_form_does_is_said(tmp_path, own, said):
    found = made_up(tmp_path, 1, lambda method, seed: own if "paper" in method else 0.7)
    text = series_report.literal([found])
    assert said in text
    assert "negative: it flattens; Corr[z, ψ] is -0.30" in text
    assert "uniqueness at equal validity not comparable" in text, "no other has its validity"


def test_a_folder_of_other_weights_is_refused(study, cache, tmp_path, monkeypatch):
    """They may have been trained elsewhere, and round differently."""
    shutil.copytree(study.folder, tmp_path / "moved")
    trained = series.load_or_train

    def trained_elsewhere(*arguments):
        return jax.tree.map(lambda leaf: leaf * 1.001, trained(*arguments))

    monkeypatch.setattr(module, "load_or_train", trained_elsewhere)
    options = {"quick": True, "progress": False, "models": ["tied"], "cache": cache}
    with pytest.raises(ValueError, match=r"got other weights\.tied"):
        arithmetic(tmp_path / "moved", **options)


def test_compared_by_intervals():
    assert series_report.compared([3.0, 4.0], [1.0, 2.0]) == 1
    assert series_report.compared([1.0, 2.0], [3.0, 4.0]) == -1
    assert series_report.compared([1.0, 3.0], [2.0, 4.0]) == 0


def test_the_model_is_trained_on_series_alone():
    for prompt, answer in series.Series().pairs("train", 50, (0, 1)):
        numbers = np.asarray([answer.split()], np.int32)
        assert prompt == ""
        assert bool(series.is_series(jnp.asarray(numbers + series.FIRST_ID))[0])


@pytest.mark.parametrize("tied", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_trained_once_and_kept_in_the_users_cache(tied, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sizes = {"width": 8, "layers": 1, "heads": 2, "tied": tied}
    recipe = series.make_recipe(**sizes, training=Training(steps=3, batch=4))
    trained = series.load_or_train(recipe, progress=False)
    (path,) = (tmp_path / "sake_jax" / "series").iterdir()
    assert np.array_equal(trained["input"]["rows"], trained["output"]["rows"]) == tied
    shape = jax.tree.structure(init(series.make_denoiser(recipe).config, jax.random.key(0)))
    assert jax.tree.structure(trained) == shape
    again = series.load_or_train(recipe, path.parent, progress=False)
    assert series.checksum(again) == series.checksum(trained)
    assert len(list(path.parent.iterdir())) == 1
    other = series.make_recipe(**sizes, training=Training(steps=2, batch=4))
    assert series.checksum(series.load_or_train(other, progress=False)) != series.checksum(trained)
    assert len(list(path.parent.iterdir())) == 2
    with pytest.raises(ValueError, match="published models have rotary positions"):
        Trainer(recipe, path).publish()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ["bound"]}, "models must be one of 'tied', 'untied'"),
        ({"models": []}, "models must name one or more"),
        ({"seeds": 0}, "seeds must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        arithmetic(tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_models_have_whole_heads():
    with pytest.raises(ValueError, match=r"model.width must be a multiple"):
        series.make_denoiser(series.make_recipe(width=9, heads=2))


def test_forms_are_all_used():
    assert {method.form for method in METHODS.values()} == set(FORMS)
