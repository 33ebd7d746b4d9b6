"""Plans for GPUs, by their own compiler."""

import importlib.util

import pytest

from sake_jax.conversion import model_config
from sake_jax.planning import Job, plan, topology
from sake_jax.planning.chips import CHIPS, GIB
from sake_jax.planning.overhead import overheads
from sake_jax.samplers.request import Request

missing = importlib.util.find_spec("jax_cuda12_plugin") is None
reason = "needs jax-cuda12-plugin and jax-cuda12-pjrt of JAX's release (pip install --no-deps)"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing, reason=reason)]

TINY = model_config("tinystories")


@pytest.mark.parametrize("chips", ["h100:8", "a100:2"])
def test_a_small_model(chips):
    there = topology(chips)
    job = Job(TINY, Request(length=16, guidance="sake"), batch=8, prompt=16)
    found = plan(job, there, {"data": there.devices})
    assert found.fits
    assert found.memory is not None
    assert found.held < found.memory.arguments <= found.memory.peak < GIB
    assert found.compiler_seconds is None  # this compiler writes no estimates
    assert found.rate > 1e4


def test_a_model_is_split():
    job = Job(TINY, Request(length=16), batch=2, prompt=16)
    whole = plan(job, topology("h100:1"), {})
    split = plan(job, topology("h100:4"), {"tensor": 4})
    assert whole.memory is not None
    assert split.memory is not None
    assert split.memory.arguments < 0.5 * whole.memory.arguments
    assert split.cost.sent > 0


def test_llada_fits_one_h100():
    request = Request(length=128, block=32, temperature=0.7)
    found = plan(Job(model_config("llada-8b"), request, prompt=128), topology("h100:1"), {})
    assert found.fits
    assert found.memory is not None
    assert found.held <= found.memory.peak < 20 * GIB
    # A step reads the weights at least, and is far from an hour.
    assert found.held / CHIPS["h100"].bandwidth < found.cost.seconds < 0.1


def test_guidances_add_what_they_should():
    job = Job(model_config("llada-8b"), Request(length=128, block=32), prompt=128)
    found = overheads(job, topology("h100:1"), {})
    base = found["none"].cost.seconds
    assert found["SAKE folded"].cost.seconds <= 1.005 * base
    assert found["classifier-free"].cost.seconds > 1.33 * base


@pytest.mark.parametrize("name", ["h100:2x", "h100", "h200:1"])
def test_gpus_that_are_none(name):
    with pytest.raises(ValueError, match=r"topology must be a chip of .*h100.*such as"):
        topology(name)
