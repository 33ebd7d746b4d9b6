"""Runs by the clock, in small; on a machine that other tests use, times mean nothing."""

import types

import jax
import pytest

from sake_jax.chips import Chip
from sake_jax.planning.bench import measured, planned
from sake_jax.planning.bench.clock import BenchSetting, compiled_run, time_forms
from sake_jax.planning.bench.scaled import (
    LLADA,
    SHARE,
    scaled_config,
    scaled_model,
    scaled_vocabulary,
)
from sake_jax.planning.forms import BASE, DEFAULT, FORMS, FREE
from sake_jax.planning.topology import Topology

TINY = BenchSetting(prompts=(8,), length=4, steps=2, batch=2, rounds=2)
CHIP = Chip("small", "cpu", memory=1e9, flops=1e12, bandwidth=1e11, link=1e10, clock=1e9)


@pytest.fixture(scope="module")
def lm():
    return scaled_model(16, 1, 2)


def here(count: int) -> Topology:
    return Topology("here", CHIP, types.SimpleNamespace(devices=jax.devices()[:count]))


def test_the_heads_share_is_that_of_llada(lm):
    c = lm.config.network
    assert (c.D, c.N, c.H, c.F, c.head_dim) == (16, 1, 2, 48, 8)
    assert scaled_vocabulary(64, 3) == round(SHARE * 3 * 64)
    assert scaled_config(LLADA.D, scaled_vocabulary(LLADA.D, LLADA.N), LLADA.N, LLADA.H) == LLADA


def test_forms_run_in_turn(lm, capsys):
    result = time_forms("small", TINY.job(lm, 8), lm.params, 2, (BASE, FREE))
    assert list(result["forms"]) == [BASE, FREE]
    base = result["forms"][BASE]
    assert base["ratio"] == [1, 1, 1]
    # Two rows of 4 tokens in 2 steps.
    assert base["tokens_per_second"] == pytest.approx(8 / (2 * base["ms"] / 1e3), rel=0.01)
    assert base["compile"] > 0
    assert result["forms"][FREE]["ratio"][1] <= result["forms"][FREE]["ratio"][2]
    assert "small: round 2 of 2" in capsys.readouterr().err


def test_the_paper_s_form_writes_what_window_only_writes(lm):
    """Head and signal on all columns change what is computed, not what is written."""
    runs = {}
    for name in ("SAKE, window only, input table", "SAKE on all columns: Algorithm 1"):
        canvas, _ = compiled_run(TINY.job(lm, 8).in_form(FORMS[name]), lm.params)[0]()
        runs[name] = canvas.tokens
    one, other = runs.values()
    assert bool((one == other).all())


def test_a_prompt_that_does_not_fit_stops_before_anything_runs(lm):
    setting = BenchSetting(prompts=(8, 5000), length=4, steps=2, rounds=1)
    with pytest.raises(ValueError, match="context of 4096"):
        measured.by_prompt(lm, setting)


def test_devices_of_one_cpu_are_not_compared(monkeypatch):
    assert measured.device_counts() == []
    chip = types.SimpleNamespace(platform="tpu")
    monkeypatch.setattr(jax, "devices", lambda: [chip] * 8)
    assert measured.device_counts() == [1, 2, 4, 8]


@pytest.mark.slow
def test_rows_go_over_devices(lm):
    (result,) = measured.by_devices(lm, TINY, [2])
    assert result["at"] == 2
    assert set(result["forms"]) == set(measured.GROWING)


@pytest.mark.slow
def test_all_tables(monkeypatch):
    monkeypatch.setattr(measured, "scaled_model", lambda times: scaled_model(16, 1, 2, times))
    result = measured.measure_tables(scaled_model(16, 1, 2), TINY, "scaled")
    tables = result["tables"]
    first = scaled_vocabulary(16, 1)
    assert [cell["at"] for cell in tables["vocabulary"]] == [first, 4 * first, 16 * first]
    assert [cell["at"] for cell in tables["batch"]] == [2, 8, 32]
    assert set(tables["prompt"][0]["forms"]) == set(FORMS)
    assert tables["batch"][0]["forms"][DEFAULT] == tables["prompt"][0]["forms"][DEFAULT]
    assert (
        "vocabulary" not in measured.measure_tables(scaled_model(16, 1, 2), TINY, "other")["tables"]
    )


OUTLINE = planned.Outline("tests/goldens/llada", (8,), length=8, steps=4, batch=2)


def test_plans_have_all_forms_and_the_fastest_mesh():
    result = planned.plan_tables(OUTLINE, [planned.Target(here(2))])
    (chips,) = result["chips"]
    assert chips["devices"] == 2
    assert sorted(chips["mesh"].values()) == [1, 1, 2]
    assert [cell["at"] for cell in chips["prompt"]] == [8]
    forms = chips["prompt"][0]["forms"]
    assert set(forms) == set(FORMS)
    assert forms[FREE]["flops"] > 1.8 * forms[BASE]["flops"]
    # Two rows of 8 tokens in 4 steps.
    assert forms[BASE]["tokens_per_second"] == pytest.approx(
        16 / (4 * forms[BASE]["ms"] / 1e3), rel=0.05
    )
    assert result["setting"] == {"length": 8, "steps": 4, "batch": 2}


@pytest.mark.slow
def test_the_compiler_is_asked_about_both_ends():
    outline = planned.Outline("tests/goldens/llada", (4, 8, 16), length=8)
    result = planned.chip_table(outline, planned.Target(here(1), {}), compile_it=True)
    asked = [
        name
        for cell in result["prompt"]
        for name, form in cell["forms"].items()
        if "compiler" in form
    ]
    assert asked == [*planned.COMPILED, *planned.COMPILED]
    said = result["prompt"][0]["forms"][BASE]["compiler"]
    assert said["fits"]
    assert said["peak"] > 0
    assert said["ms"] is None  # a CPU's compiler does not tell
