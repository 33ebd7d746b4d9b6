"""The first order of the entropy's change, and its covariance against redundancy."""

import jax
import numpy as np
import pytest
from scipy.stats import spearmanr

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.experiments import entropy
from sake_jax.experiments.samples import Writer
from sake_jax.experiments.watching import Watch, Watched, modulation, spearman
from sake_jax.guidance import chain, entropy_slope, guide
from sake_jax.testing import toy_context, toy_params, toy_view

SMALL = {
    "model": GOLDENS / "llada",
    "quick": True,
    "samples": 1,
    "length": 8,
    "progress": False,
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return entropy.entropy(tmp_path_factory.mktemp("entropy"), seeds=2, **SMALL)


@pytest.mark.parametrize("method", entropy.METHODS)
def test_the_first_order_is_right_for_small_strengths(study, method):
    for seed in (0, 1):
        (small,) = study.rows(method=method, strength=0.05, seed=seed)
        (usual,) = study.rows(method=method, strength=1.0, seed=seed)
        assert small["error"] < 0.05
        assert small["same sign"] > 0.95
        assert small["error"] < usual["error"]
        assert abs(small["measured"]) < abs(usual["measured"])


def test_which_way_the_entropy_goes(study):
    falls = {row["method"]: row["falls"] for row in study.rows(strength=0.05, seed=0)}
    assert falls["temperature"] == 1
    assert falls["SAKE, repulsion only"] < falls["SAKE"]


def test_the_report(study):
    text = (study.folder / "table.md").read_text()
    assert text.count("| SAKE | 0.05 |") == 2
    assert text.count("| D-CFG | 1 |") == 1
    assert "**This is a quick run" in text
    assert "γ = 1: Cov[z, ψ]" not in text, "it claims nothing"
    for name in ("prediction.png", "modulation.png"):
        assert (study.folder / name).stat().st_size > 10_000


def test_the_bandwidth_matters_to_sake_only(study, tmp_path, monkeypatch):
    other = entropy.entropy(tmp_path, seeds=1, bandwidth=4.0, **SMALL)
    assert "SAKE's σ: 4.0" in (tmp_path / "table.md").read_text()
    for row in other.rows():
        cell = {name: row[name] for name in ("method", "strength", "seed")}
        same = study.rows(**cell)[0]["predicted"] == row["predicted"]
        assert same == (row["method"] not in entropy.SAKE)

    lines = other.journal.path.read_text().splitlines(keepends=True)
    other.journal.path.write_text("".join(lines[:-2]))
    drawn, write = [], Writer.write
    monkeypatch.setattr(Writer, "write", lambda *given: drawn.append(given[2]) or write(*given))
    again = entropy.entropy(tmp_path, seeds=1, bandwidth=4.0, **SMALL)
    assert drawn == [0, 0]
    timeless = lambda study: [row | {"seconds": 0} for row in study.rows()]  # noqa: E731
    assert timeless(again) == timeless(other)


@pytest.fixture(scope="module")
def seen():
    """SAKE by itself and watched, in a toy scene: (guided alone, guided watched, view)."""
    params, view = toy_params(1), toy_view(1)

    @jax.jit
    def both(params, view):
        ctx = toy_context(params, view, record="full")
        found = []
        for guidance in (sj.sake(0.5), Watched(sj.sake(0.5))):
            composed = chain(guidance)
            found.append(guide(composed, composed.init(ctx), ctx))
        return found

    return *both(params, view), view


def test_watching_changes_nothing_and_sees_each_position(seen):
    alone, watched, view = seen
    np.testing.assert_array_equal(alone.logits, watched.logits)
    (positions,) = watched.reports
    is_open = np.asarray(view.window(view.open & view.attend))
    np.testing.assert_array_equal(positions.open, is_open)
    slope = -np.asarray(entropy_slope(watched.base, watched.logits - watched.base))
    np.testing.assert_allclose(np.asarray(positions.covariance)[is_open], slope[is_open], rtol=1e-3)
    (signal,) = alone.reports
    mean = np.mean(positions.redundancy, axis=1, where=is_open)
    np.testing.assert_allclose(mean, signal.redundancy, rtol=1e-5)
    mean = np.mean(positions.correlation, axis=1, where=is_open)
    np.testing.assert_allclose(mean, signal.correlation, rtol=1e-3)


def test_ranks_as_scipy_has_them():
    random = np.random.default_rng(0)
    a, b = random.integers(0, 5, (2, 40)).astype(float)
    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert spearman(a, np.ones(40)) == 0


def made_up(turns: bool) -> Watch:
    """Covariance falls with redundancy, from above 0 to below it or not that far."""
    near = np.linspace(0, 1, 60).reshape(6, 10)
    along = (0.5 if turns else 2.0) - near
    return Watch(along[:, 0], along[:, 0], near < 0.9, along, 0.1 * along, near)


@pytest.mark.parametrize("turns", [True, False])
def test_the_verdict_is_plain(tmp_path, monkeypatch, turns):
    found = modulation(made_up(turns))
    assert found["spearman"] == found["inside"] == found["scale-free"] == -1
    assert found["most"] < found["least"]
    assert (found["least flattened"], found["most flattened"]) == (0, float(turns))

    monkeypatch.setattr(Writer, "write", lambda *given: None)
    monkeypatch.setattr(entropy, "watched", lambda out: made_up(turns))
    entropy.entropy(tmp_path, seeds=2, progress=False)
    text = (tmp_path / "table.md").read_text()
    assert "SAKE, repulsion only, γ = 1: Cov[z, ψ]" in text
    assert ("the sign turns" in text) == turns
    assert ("would sharpen most of the former" in text) != turns
