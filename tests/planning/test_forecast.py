"""Plans for the devices of this machine, which stand in for chips that are not here."""

import dataclasses
import json
import types

import jax
import pytest
from typer.testing import CliRunner

from sake_jax import Request, canvas, cli
from sake_jax.chips import CHIPS, Chip
from sake_jax.conversion import model_config
from sake_jax.planning import (
    Job,
    drafted,
    fastest_that_fits,
    forecast,
    overheads,
    sweep,
    topology,
)
from sake_jax.planning.forecast import read_shares
from sake_jax.planning.forms import ALL_COLUMNS, FORMS, FREE, PAPER
from sake_jax.planning.report import (
    as_json,
    render_drafts,
    render_forecast,
    render_overheads,
    render_sweep,
)
from sake_jax.planning.topology import Topology
from sake_jax.samplers import blocks

TINY = model_config("tests/goldens/llada")
SMALL = Chip("small", "cpu", memory=1e9, flops=1e12, bandwidth=1e11, link=1e10, clock=1e9)


def here(chip: Chip = SMALL) -> Topology:
    return Topology("here", chip, types.SimpleNamespace(devices=jax.devices()))


def job(**options) -> Job:
    request = {"length": 8, "block": 4, "temperature": 0.7}
    words = {n: options.pop(n) for n in ("guidance", "cache", "steps") if n in options}
    shape = {"batch": 8, "prompt": 8, "dtype": "float32"} | options
    return Job(TINY, Request(**(request | words)), **shape)


def test_what_is_compiled_is_what_runs():
    result = forecast(job(guidance="sake"), here(), {"data": 4, "tensor": 2})
    assert result.fits
    assert result.memory is not None
    assert result.memory.peak >= result.memory.arguments > result.parameter_bytes
    assert result.mesh == {"data": 4, "fsdp": 1, "tensor": 2}
    assert result.tokens_per_second == pytest.approx(8 * 8 / (8 * result.cost.seconds))
    assert result.compiler_seconds is None  # a CPU's compiler does not tell
    assert "fits" in render_forecast(result)
    assert as_json(result)["memory"]["peak"] == result.memory.peak


def test_operations_by_hand():
    """Every layer's kernels for every column, attention, and the head on the window."""
    c = TINY.network
    result = forecast(job(), here(), {"data": 8}, compile_it=False)
    columns, window = 16, 4
    kernels = c.N * (c.D * c.head_dim * (2 * c.H + 2 * c.K) + 3 * c.D * c.F)
    attention = c.N * 2 * c.H * c.head_dim * columns
    rows = columns * (kernels + attention) + window * c.D * c.V
    assert result.cost.flops == pytest.approx(2 * rows, rel=0.02)


def test_operations_with_experts_by_hand():
    """A column goes through its own experts, the shared one, and dense first layers."""
    config, block, columns = model_config("tests/goldens/llada2"), 4, 16
    c = dataclasses.replace(config.network, block_size=block)
    config = dataclasses.replace(config, network=c, mask_id=5)
    now = Job(config, Request(length=8), batch=8, prompt=8, dtype="float32")
    result = forecast(now, here(), {"data": 8}, compile_it=False)
    attention = c.D * c.head_dim * (2 * c.H + 2 * c.K) + 2 * c.H * c.head_dim * columns
    experts = c.D * c.experts + 3 * c.D * (c.experts_per_token * c.F + c.shared_F)
    layers = c.N * attention + (c.N - c.dense_layers) * experts
    layers += c.dense_layers * 3 * c.D * c.dense_F
    # Of eight steps, six read the block, one the block before with it, and one everything.
    rows = (6 * block + 2 * block + columns) / 8
    assert result.cost.flops == pytest.approx(2 * (rows * layers + block * c.D * c.V), rel=0.02)


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [("llada2-mini", 16.26, 1.43), ("LLaDA2.0-flash", 102.89, 6.15), ("JetLM/SDAR-8B", 8.19, 8.19)],
)
def test_published_models_are_planned_by_name(name, billions, active):
    """Memory is for all experts, a step of one row reads and computes with few."""
    config = model_config(name)
    now = Job(config, Request(length=32, steps=32), prompt=32)
    assert now.parameters / 1e9 == pytest.approx(billions, abs=0.005)
    assert now.active_parameters / 1e9 == pytest.approx(active, abs=0.005)
    result = forecast(now, here(CHIPS["v5p"]), {"tensor": 4, "fsdp": 2}, compile_it=False)
    # Nearly all of it is split: not the router, nor queries and keys that are stored together.
    assert 2e9 * billions <= 8 * result.parameter_bytes * 1.001 < 1.03 * 2e9 * billions
    tables, block = 2 * config.network.V * config.network.D, config.network.block_size
    # The input table is looked up, and the head is for the window; at most all columns are read.
    assert 2 * block * (1e9 * active - tables) < 8 * result.cost.flops < 2 * 64 * 1e9 * active
    assert 8 * result.cost.bytes > 2 * (1e9 * active - tables / 2)
    if active < billions:  # 32 tokens go through 163 of 256 experts
        assert 8 * result.cost.bytes < 0.75 * 2e9 * billions
    text = render_forecast(result)
    assert f"{billions:.2f} billion" in text
    assert (f"{active:.2f} for one token" in text) == (active < billions)
    assert as_json(result)["active_parameters"] == now.active_parameters


def test_a_cache_reads_less():
    whole = forecast(job(), here(), {"data": 8}, compile_it=False).cost.flops
    kept = forecast(job(cache="dual"), here(), {"data": 8}, compile_it=False).cost.flops
    assert kept < 0.7 * whole


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        ("none", None),
        # The window, and everything at the first step of each of two blocks.
        ("dual", (0.75, 0.25)),
        # The first block and what follows, the second block, everything.
        ("prefix", (0.375, 0.375, 0.25)),
        # The window, the block before with it, everything once.
        ("exact", (0.75, 0.125, 0.125)),
    ],
)
def test_how_often_a_cache_is_refreshed(cache, expected):
    plan = blocks(8, 8, 4, cache=cache, ahead=cache != "exact")
    assert read_shares(plan, canvas([[1]], 8, mask_id=9)) == expected


def one(chip: Chip) -> Topology:
    return Topology("one", chip, types.SimpleNamespace(devices=jax.devices()[:1]))


def test_drafts_bring_most_where_weights_are_waited_for():
    """LLaDA-8B's window of 32 columns waits for its weights; eight whole canvases do not."""
    config = model_config("llada-8b")
    window = Job(config, Request(length=64, cache="dual"), prompt=64)
    few = drafted(window, one(CHIPS["v6e"]), {})
    assert [each.drafts for each in few] == [1, 2, 4, 8]
    assert few[2].read < 1.3 * few[0].read
    assert few[2].tokens_per_second > 1.4 * few[0].tokens_per_second
    plain = forecast(window, one(CHIPS["v6e"]), {}, compile_it=False)
    assert few[0].tokens_per_second == pytest.approx(plain.tokens_per_second, rel=0.1)
    canvases = Job(config, Request(length=64), batch=8, prompt=64)
    many = drafted(canvases, one(CHIPS["v5e"]), {})
    assert many[2].read > 3 * many[0].read
    assert many[2].tokens_per_second < 0.7 * many[0].tokens_per_second
    assert "| 8 |" in render_drafts(few)
    ancestral = Job(TINY, Request(length=8, sampler="ancestral"), prompt=8)
    assert drafted(ancestral, one(SMALL), {}) == []


def test_int8_holds_less():
    short = forecast(job(dtype="int8"), here(), {"data": 8}, compile_it=False)
    long = forecast(job(), here(), {"data": 8}, compile_it=False)
    middle = forecast(job(dtype="bfloat16"), here(), {"data": 8}, compile_it=False)
    assert short.parameter_bytes < middle.parameter_bytes == long.parameter_bytes / 2


def test_guidances_add_what_they_should():
    result = overheads(job(guidance="sake"), here(), {"tensor": 4, "data": 2})
    assert set(result) == {"none", *FORMS}
    cost = {name: each.cost.flops / result["none"].cost.flops for name, each in result.items()}
    assert 1 <= cost["SAKE folded"] < cost["SAKE, window only"] < cost["classifier-free"]
    assert cost["classifier-free"] == pytest.approx(2, rel=0.1)
    assert "classifier-free" in render_overheads(result)


def test_guidances_that_a_model_does_not_take_are_left_out():
    """DiffusionGemma's head caps its logits, and its window is all that it decodes."""
    config = model_config("tests/goldens/diffusion_gemma")
    result = overheads(Job(config, Request(length=6)), here(), {"fsdp": 8})
    assert set(FORMS) - set(result) == {FREE, ALL_COLUMNS, PAPER}
    cost = {name: each.cost.flops / result["none"].cost.flops for name, each in result.items()}
    assert min(cost.values()) == cost["none"] < cost["SAKE folded"]


def test_a_sweep_puts_the_fastest_first():
    result = sweep(job(), here())
    seconds = [each.cost.seconds for each in result]
    assert seconds == sorted(seconds)
    assert {each.mesh["data"] for each in result} <= {1, 2, 4, 8}
    assert render_sweep(result).count("\n") == len(result) + 1
    chosen = fastest_that_fits(result)
    assert chosen.fits
    assert chosen.mesh == result[0].mesh


def test_nothing_fits_a_chip_without_memory():
    tiny = Chip("tiny", "cpu", memory=1e4, flops=1e12, bandwidth=1e11, link=1e10)
    with pytest.raises(ValueError, match=r"must fit the 0.00 GiB of a tiny.*more chips"):
        fastest_that_fits(sweep(job(), here(tiny)))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"data": 3}, "must be the 8 devices of here"),
        ({"tensor": 8}, "must divide the model's 4 heads"),
        ({"data": 8}, "data axis must divide the batch"),
    ],
)
def test_meshes_that_do_not_divide(sizes, said):
    with pytest.raises(ValueError, match=said):
        forecast(job(batch=4), here(), sizes, compile_it=False)


@pytest.mark.parametrize("name", ["v9:2x2", "v5e", "v5e:two"])
def test_topologies_that_are_none(name):
    with pytest.raises(ValueError, match="topology must be a chip"):
        topology(name)


def test_a_compiler_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs the package libtpu.*pip install.*--no-compile"):
        topology("v5e:2x4")
    words = "plan tests/goldens/llada --topology v5e:4x4 --mesh data=8,tensor=2 --batch 8"
    words += " --prompt 8 --length 8 --no-compile --json"
    result = CliRunner().invoke(cli.app, words.split())
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["memory"] is None
    assert report["mesh"] == {"data": 8, "fsdp": 1, "tensor": 2}


@pytest.mark.parametrize("sizes", [{"data": 4, "tensor": 2}, {"fsdp": 8}])
def test_what_is_only_counted_needs_no_compiler(sizes):
    apart = Topology("apart", SMALL, 8)
    counted = forecast(job(guidance="sake"), apart, sizes, compile_it=False)
    assert counted.cost == forecast(job(guidance="sake"), here(), sizes, compile_it=False).cost
    with pytest.raises(ValueError, match="needs a topology with a compiler"):
        forecast(job(), apart, sizes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prompt": 4096}, "must fit the model's context"),
        ({"batch": 3, "samples": 2}, "multiple of samples"),
        ({"dtype": "float16"}, "dtype must be one of"),
    ],
)
def test_jobs_that_cannot_be(options, said):
    with pytest.raises(ValueError, match=said):
        job(**options)


def test_chips_have_what_plans_need():
    for chip in CHIPS.values():
        assert min(chip.memory, chip.flops, chip.bandwidth, chip.link) > 1e9
