"""Sweeps over the two bandwidths: what is tried, what is measured, and the report."""

import types

import jax
import numpy as np
import pytest

import sake_jax as sj
import sake_jax.metrics.texts as metric_texts
from conftest import GOLDENS
from sake_jax.experiments import sensitivity
from sake_jax.experiments.bandwidths import guidance, heuristic, sweeps, unguided
from sake_jax.experiments.samples import Writer
from sake_jax.generation.result import Row
from sake_jax.testing import outcome, toy_params, toy_view

SMALL = {"model": GOLDENS / "llada", "judge": "none", "length": 8, "progress": False}
OTHER = {"samples": 1, "strength": 3.0, "normalize": "none", "temperature": 1.5}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sensitivity")
    return sensitivity.sensitivity(folder, quick=True, seeds=1, **SMALL)


def test_a_model_without_tokenizer_has_every_measure_but_perplexity(study):
    rows = study.rows()
    assert len(rows) == 9  # unguided, and three of each sweep with one in two of them
    wanted = {"within", "across", "entropy", "size", "correlation", "redundancy", "rms", "median"}
    assert all(wanted <= row.keys() for row in rows if row["strength"])
    assert all("perplexity" not in row for row in rows)
    assert all(-1 <= row["correlation"] <= 1 for row in rows if row["strength"])
    (still,) = study.rows(strength=0.0)
    assert "correlation" not in still
    assert still["redundancy"] > 0


def test_wider_kernels_find_more_redundancy(study):
    for swept, settings in sweeps(8, 1.0, quick=True).items():
        found = [study.rows(**setting)[0]["redundancy"] for setting in settings]
        assert found == sorted(found), swept
        assert found[0] < found[-1]


def test_the_report(study):
    text = (study.folder / "table.md").read_text()
    assert text.count("| unguided |") == 3
    assert f"| {heuristic(8):g}, the heuristic |" in text
    assert "Lowest perplexity" not in text  # nobody judged
    assert "**This is a quick run" in text
    assert (study.folder / "sensitivity.png").stat().st_size > 10_000


def test_options_and_going_on(study, tmp_path, monkeypatch):
    other = sensitivity.sensitivity(tmp_path, quick=True, seeds=1, **SMALL | OTHER)
    told = (tmp_path / "table.md").read_text()
    assert "sake(3, normalize='none')" in told
    assert "1 samples of 8 tokens" in told
    assert "T = 1.5" in told
    # The paper's signal dies away with σ, ours does not.
    narrow, wide = (other.rows(bandwidth=sigma)[0]["rms"] for sigma in (20.0, 120.0))
    assert wide < 0.1 * narrow
    assert study.rows(bandwidth=120.0)[0]["rms"] == pytest.approx(1, abs=0.05)

    lines = other.journal.path.read_text().splitlines(keepends=True)
    other.journal.path.write_text("".join(lines[:-1]) + lines[-1][:20])
    drawn, write = [], Writer.write
    monkeypatch.setattr(Writer, "write", lambda *given: drawn.append(given[2]) or write(*given))
    again = sensitivity.sensitivity(tmp_path, quick=True, seeds=1, **SMALL | OTHER)
    assert drawn == [0]
    timeless = lambda study: [row | {"seconds": 0} for row in study.rows()]  # noqa: E731
    assert timeless(again) == timeless(other)
    with pytest.raises(ValueError, match="must be new or hold a run with the same"):
        sensitivity.sensitivity(tmp_path, quick=True, seeds=1, **SMALL)


def test_the_guidance_is_sake_with_these_widths():
    params, view = toy_params(0), toy_view(0)
    base = unguided(6)
    log_q, logits = outcome(guidance(base, "rms"), params, view)
    np.testing.assert_array_equal(log_q, logits)
    near = {"attention_bandwidth": base["attention"], "normalize": "none"}
    for setting, bandwidth in (({"multiple": 1.0}, "median"), ({"bandwidth": 0.7}, 0.7)):
        ours = base | {"strength": 2.0, "multiple": 0.0} | setting
        wanted, _ = outcome(sj.sake(2.0, bandwidth=bandwidth, **near), params, view)
        found, _ = outcome(guidance(ours, "none"), params, view)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        assert float(np.max(np.abs(found - logits))) > 1e-3


def test_sweeps_have_the_heuristics_among_them():
    found = sweeps(64, 0.5, quick=False)
    assert heuristic(64) == pytest.approx(64 / 3.03, abs=0.1)
    assert heuristic(64) in [setting["attention"] for setting in found["attention"]]
    shared = [setting for setting in found["multiple"] if setting in found["attention"]]
    assert shared == [unguided(64) | {"strength": 0.5}]
    assert all(setting["multiple"] == 0 for setting in found["bandwidth"])


def test_what_is_close_to_the_best_is_told_of_other_seeds(tmp_path, monkeypatch):
    """By made-up numbers: σ = 20 is the best by the first seed, and 40 by the others."""

    def made_up(writer, normalize, cell):
        apart = abs(np.log2(cell["bandwidth"] / 40)) if cell["bandwidth"] else 8.0
        found = 100.0 + 10 * apart - 30 * (cell["bandwidth"] == 20 and cell["seed"] == 0)
        diverse = {"within": 0.5, "across": 0.5, "median": 3.0}
        return {"perplexity": found} | diverse

    monkeypatch.setattr(sensitivity, "_measured", made_up)
    sensitivity.sensitivity(tmp_path, seeds=3, progress=False)
    text = (tmp_path / "table.md").read_text()
    assert "at σ = 20. By the others it is 110.0" in text
    assert "at most 10 % more at 10, 20, 40, 80, 120." in text


def test_perplexity_is_of_texts_after_their_prompts(monkeypatch):
    writer = Writer("any", "critic", 2, 8, 1.0)
    critic = sj.load(GOLDENS / "llama")
    writer.__dict__ |= {"critic": critic, "prompts": ["one", "two"]}
    rows = [Row(at // 2, at % 2, [], [], [], f"a b {at // 2}", "length", 8) for at in range(4)]
    asked = []
    scored = lambda *given: asked.append(given) or types.SimpleNamespace(value=7.0)  # noqa: E731
    monkeypatch.setattr(metric_texts, "perplexity", scored)
    found = writer.measures(sj.Generation(rows, 2, {}))
    texts = ["a b 0", "a b 0", "a b 1", "a b 1"]
    assert asked == [(critic, texts, ["one", "one", "two", "two"])]
    assert (found["perplexity"], found["within"], found["across"]) == (7.0, 1.0, 0.5)


def test_no_judge_is_loaded_where_none_is_wanted():
    assert Writer("another", "none", 1, 8, 1.0).critic is None
    assert Writer("tinystories", "auto", 1, 8, 1.0).judge == "tinystories-causal"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mdlm", "bd3lm"])
def test_other_families_are_measured(family):
    writer = Writer(str(GOLDENS / family), "auto", 1, 4, 1.0)
    cell = sweeps(4, 1.0, quick=True)["bandwidth"][1] | {"seed": 1}
    found = sensitivity._measured(writer, "rms", cell)
    assert found["redundancy"] > 0
    assert found["rms"] > 0
    assert found["size"] <= 4
    assert jax.tree.all(jax.tree.map(np.isfinite, found))
