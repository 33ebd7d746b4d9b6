"""Splash attention, a kernel for TPUs: interpreted here, compiled for a TPU that is not here."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.conversion import model_config
from sake_jax.models import TransformerConfig
from sake_jax.models.attention import plain
from sake_jax.models.splash import splash
from sake_jax.planning import Job, forecast, topology
from sake_jax.samplers.request import Request
from sake_jax.sharding import sharding

LLADA = str(GOLDENS / "llada")


def inputs(batch: int, rows: int, columns: int, heads: int, key_heads: int):
    random = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(random.normal(size=shape), jnp.float32)  # noqa: E731
    q, k, v = (draw(batch, n, h, 8) for n, h in ((rows, heads), *[(columns, key_heads)] * 2))
    attend = jnp.asarray(random.random((batch, columns)) < 0.7).at[:, 0].set(True)
    return q, k, v, attend


@pytest.mark.parametrize(
    ("rows", "columns", "key_heads"),
    [
        (20, 20, 2),
        # More tiles than one, some rows only, keys that several heads share.
        pytest.param(130, 260, 1, marks=pytest.mark.slow),
    ],
)
def test_the_kernel_computes_attention(rows, columns, key_heads):
    q, k, v, attend = inputs(2, rows, columns, 2, key_heads)
    wanted = plain(q, k, v, jnp.broadcast_to(attend[:, None], (2, rows, columns)))
    found = jax.jit(functools.partial(splash, interpret=True))(q, k, v, attend)
    np.testing.assert_allclose(found, wanted, atol=2e-4)


@pytest.mark.slow
def test_on_a_mesh():
    q, k, v, attend = inputs(4, 20, 20, 2, 1)
    wanted = plain(q, k, v, attend[:, None])
    mesh = sj.mesh(data=2, tensor=2)
    split = jax.device_put(q, sharding(mesh, q.shape, ("batch", None, "heads", None)))
    found = jax.jit(functools.partial(splash, interpret=True))(split, k, v, attend)
    assert len(found.sharding.device_set) == 4
    np.testing.assert_allclose(found, wanted, atol=2e-4)


def test_elsewhere_it_is_as_plain():
    tokens = [[1, 2, 3, 4]]
    found = sj.load(LLADA, attention="splash")
    assert found.config.network.attention == "splash"
    np.testing.assert_array_equal(found.logits(tokens), sj.load(LLADA).logits(tokens))


@pytest.mark.parametrize(
    ("name", "attention", "said"),
    [
        ("llada", "flash", "attention must be one of"),
        ("mdlm", "splash", "a choice of transformers"),
        ("llama", "splash", "networks that read both ways"),
    ],
)
def test_what_cannot_be(name, attention, said):
    with pytest.raises(ValueError, match=said):
        sj.load(GOLDENS / name, attention=attention)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"tensor": 8}, {"data": 2, "tensor": 4}])
def test_long_canvases_take_less_of_a_tpu(mesh):
    """By the compiler's memory and estimate, which has no number for the kernel itself."""
    pytest.importorskip("libtpu")
    config = model_config("llada-8b")
    assert isinstance(config.network, TransformerConfig)
    small = dataclasses.replace(config.network, N=4)  # the layers are a loop
    found = {}
    for attention in ("plain", "splash"):
        network = dataclasses.replace(small, attention=attention)
        own = dataclasses.replace(config, network=network)
        job = Job(own, Request(length=128, block=32), batch=2, prompt=3968)
        found[attention] = forecast(job, topology("v5e:2x4"), mesh)
    one, other = found["plain"], found["splash"]
    assert one.memory is not None
    assert other.memory is not None
    assert other.memory.peak < one.memory.peak - 2**28
    assert one.compiler_seconds is not None
    assert other.compiler_seconds is not None
    assert other.compiler_seconds < 0.7 * one.compiler_seconds
    assert other.cost.flops == pytest.approx(one.cost.flops)
