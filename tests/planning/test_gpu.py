"""Plans for GPUs, by their own compiler."""

import importlib.util

import pytest

from sake_jax import Request
from sake_jax.chips import CHIPS, GIB
from sake_jax.conversion import model_config
from sake_jax.planning import Job, forecast, overheads, topology

missing = importlib.util.find_spec("jax_cuda12_plugin") is None
reason = "needs jax-cuda12-plugin and jax-cuda12-pjrt of JAX's release (pip install --no-deps)"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing, reason=reason)]

TINY = model_config("tinystories")


@pytest.mark.parametrize("chips", ["h100:8", "a100:2"])
def test_a_small_model(chips):
    there = topology(chips)
    job = Job(TINY, Request(length=16, guidance="sake"), batch=8, prompt=16)
    result = forecast(job, there, {"data": there.devices})
    assert result.fits
    assert result.memory is not None
    assert result.parameter_bytes < result.memory.arguments <= result.memory.peak < GIB
    assert result.compiler_seconds is None  # this compiler writes no estimates
    assert result.tokens_per_second > 1e4


def test_a_model_is_split():
    job = Job(TINY, Request(length=16), batch=2, prompt=16)
    whole = forecast(job, topology("h100:1"), {})
    split = forecast(job, topology("h100:4"), {"tensor": 4})
    assert whole.memory is not None
    assert split.memory is not None
    assert split.memory.arguments < 0.5 * whole.memory.arguments
    assert split.cost.sent > 0


def test_llada_fits_one_h100():
    request = Request(length=128, block=32, temperature=0.7)
    result = forecast(Job(model_config("llada-8b"), request, prompt=128), topology("h100:1"), {})
    assert result.fits
    assert result.memory is not None
    assert result.parameter_bytes <= result.memory.peak < 20 * GIB
    # A step reads the weights at least, and is far from an hour.
    assert result.parameter_bytes / CHIPS["h100"].bandwidth < result.cost.seconds < 0.1


def test_guidances_add_what_they_should():
    job = Job(model_config("llada-8b"), Request(length=128, block=32), prompt=128)
    result = overheads(job, topology("h100:1"), {})
    base = result["none"].cost.seconds
    assert result["SAKE folded"].cost.seconds <= 1.005 * base
    assert result["classifier-free"].cost.seconds > 1.33 * base


@pytest.mark.parametrize("name", ["h100:2x", "h100", "h200:1"])
def test_gpus_that_are_none(name):
    with pytest.raises(ValueError, match=r"topology must be a chip of .*h100.*such as"):
        topology(name)
