"""Plans for TPUs, by their own compiler."""

import json

import pytest
from typer.testing import CliRunner

from sake_jax import Request, cli
from sake_jax.chips import GIB
from sake_jax.conversion import model_config
from sake_jax.planning import Job, forecast, overheads, topology

pytestmark = pytest.mark.slow
pytest.importorskip("libtpu")

PROTOTYPE = [
    # chips, mesh, batch, prompt, peak GiB of a chip by an earlier hand-written sampler
    ("v5e:2x4", {"tensor": 8}, 1, 128, 2.24),
    ("v5e:2x4", {"data": 2, "tensor": 4}, 8, 1024, 4.8),
    ("v5e:4x4", {"data": 4, "tensor": 4}, 16, 128, 4.5),
    ("v5p:2x2x1", {"tensor": 4}, 1, 128, 4.5),
    ("v6e:1x1", {}, 1, 128, 16.05),
]


def llada(batch: int, prompt: int, **words) -> Job:
    request = Request(length=128, block=32, temperature=0.7, **words)
    return Job(model_config("llada-8b"), request, batch=batch, prompt=prompt)


def test_a_small_model():
    job = Job(model_config("tinystories"), Request(length=16), batch=8, prompt=16)
    result = forecast(job, topology("v5e:2x4"), {"data": 8})
    assert result.fits
    assert result.compiler_flops
    assert result.compiler_seconds is not None
    assert 0.01 < result.cost.seconds / result.compiler_seconds < 1


def test_an_arrangement_that_is_none():
    with pytest.raises(ValueError, match="must know the arrangement"):
        topology("v5e:3x5")


def test_a_model_that_does_not_fit():
    result = forecast(llada(8, 2048), topology("v5e:1x1"), {})
    assert result.fits is False
    assert result.complaint


@pytest.mark.parametrize(("chips", "mesh", "batch", "prompt", "peak"), PROTOTYPE)
def test_llada_takes_no_more_than_the_prototype(chips, mesh, batch, prompt, peak):
    result = forecast(llada(batch, prompt), topology(chips), mesh)
    assert result.fits
    assert result.memory is not None
    assert result.memory.peak <= peak * GIB
    assert result.compile_seconds < 180


@pytest.mark.parametrize("prompt", [128, 1024])
def test_sake_is_nearly_free(prompt):
    result = overheads(llada(1, prompt), topology("v6e:1x1"), {})
    base = result["none"].cost.seconds
    added = {name: each.cost.seconds / base - 1 for name, each in result.items()}
    assert added["SAKE folded"] <= 0.005
    assert added["SAKE, window only"] <= 0.06
    assert added["SAKE, window only, input table"] <= 0.06
    assert added["classifier-free"] > 0.33


def test_the_command_with_splash_attention():
    words = "plan tinystories --topology v5e:2x4 --mesh data=8 --batch 8 --length 16 --prompt 16"
    result = CliRunner().invoke(cli.app, [*words.split(), "--attention", "splash", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output[result.output.index("{") :])["fits"]
    result = CliRunner().invoke(cli.app, [*words.split(), "--attention", "flash"])
    assert result.exit_code == 1
    assert "attention must be one of" in result.output
