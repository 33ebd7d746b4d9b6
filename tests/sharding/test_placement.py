"""Where parameters go: rules, padding, what is read of a checkpoint, and which mesh fits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshes
import sake_jax as sj
from conftest import GOLDENS
from sake_jax.conversion.checkpoint import open_checkpoint
from sake_jax.conversion.loader import parameters
from sake_jax.models import choose_mesh, fit, network
from sake_jax.sharding import HIDDEN, LOGITS, constrain, constrain_rows, mesh_of, padded, spec

GB = 10**9
LLADA = dataclasses.replace(
    meshes.ODD, V=126_464, D=4096, N=32, H=32, K=32, head_dim=128, F=12_288, qkv_bias=False
)


def test_a_dimension_that_does_not_divide_stays_whole_but_a_vocabulary():
    sizes = {"data": 2, "fsdp": 4, "tensor": 8}
    assert tuple(spec((4, 3, 301), LOGITS, sizes)) == ("data", None, "tensor")
    assert tuple(spec((3, 3, 30), HIDDEN, sizes)) == (None, None, None)
    assert tuple(spec((8, 8), ("heads", "mlp"), sizes)) == ("tensor", None), "each axis once"
    assert tuple(spec((8, 8), ("vocab", "embed"), {"fsdp": 2})) == (None, "fsdp")
    assert padded((2, 301, 30), ("layers", "vocab", "embed"), sizes) == (2, 304, 30)


def test_tables_end_in_zeros_and_logits_do_not_know():
    alone, spread = meshes.load(meshes.ODD), meshes.load(meshes.ODD, (2, 1, 4))
    rows = spread.params["output"]["rows"]
    assert rows.shape == (304, 32)
    assert rows.sharding.shard_shape(rows.shape) == (76, 32)
    np.testing.assert_array_equal(rows[:301], alone.params["output"]["rows"])
    assert not np.asarray(rows[301:]).any()
    tables = jax.jit(spread.denoiser.tables)(spread.params)
    assert tables.input.shape == tables.output.shape == (301, 32)
    tokens = np.arange(32).reshape(2, 16)
    expected = alone.logits(tokens)
    np.testing.assert_allclose(spread.logits(tokens), expected, atol=2e-5)


def test_constrain_is_nothing_without_a_mesh():
    x = jnp.ones((8, 4))
    assert mesh_of(x) is None
    assert constrain(x, ("batch",)) is x
    one = jax.device_put(x, jax.sharding.NamedSharding(sj.mesh(), jax.sharding.PartitionSpec()))
    assert constrain(one, ("batch",)) is one, "a mesh of one device is no mesh"


def test_constrain_splits_what_is_made_from_nothing():
    params = meshes.load("llada", (2, 2, 2)).params

    @jax.jit
    def made(params):
        zeros = constrain_rows({"rows": jnp.zeros((4, 3, 6)), "step": jnp.int32(0)}, like=params)
        return zeros["rows"], constrain(jnp.zeros((4, 3, 6)), HIDDEN, like=params), params

    rows, hidden, _ = made(params)
    assert rows.sharding.shard_shape(rows.shape) == (2, 3, 6)
    assert hidden.sharding.shard_shape(hidden.shape) == (2, 3, 3)


def test_axes_that_a_mesh_does_not_have_are_left_out():
    """A user's own mesh may have other names."""
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.device_put(
        jnp.ones((4, 2, 7)), jax.sharding.NamedSharding(mesh, spec((4,), (None,), {}))
    )
    found = jax.jit(lambda x: constrain(2 * x, LOGITS))(x)
    assert found.sharding.shard_shape(found.shape) == (1, 2, 7)


@pytest.mark.parametrize("sizes", [(8, 1, 1), (2, 2, 2), (1, 2, 4)], ids=str)
def test_no_byte_of_a_checkpoint_is_read_twice(sizes):
    """Devices of one process that hold the same slice share one reading."""
    checkpoint = open_checkpoint(GOLDENS / "udlm")
    read, source = [], checkpoint.source.read

    def counting(name, index):
        array = source(name, index)
        read.append(array.nbytes)
        return array

    checkpoint.weights.source = type("Counting", (), {"read": staticmethod(counting)})
    parameters(checkpoint, sj.mesh(*sizes))
    leaves = checkpoint.weights.leaves.values()
    assert sum(read) == sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


@pytest.mark.parametrize(
    ("memory", "devices", "expected"),
    [
        (95, 4, (4, 1, 1)),  # v5p: a whole copy for each chip
        (32, 8, (8, 1, 1)),  # v6e: 16.03 GB of bfloat16 are less than 60 % of it
        (16, 8, (4, 1, 2)),  # v5e
        (4, 8, (1, 1, 8)),
        (0.5, 64, (1, 2, 32)),  # more than there are heads
    ],
)
def test_the_mesh_that_fits(memory, devices, expected):
    leaves = network.flatten_params(network.abstract(LLADA))
    short = {p: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16) for p, leaf in leaves.items()}
    sizes = choose_mesh(LLADA, devices, memory * GB, leaves=short)
    assert sizes == dict(zip(("data", "fsdp", "tensor"), expected, strict=True))
    assert fit.bytes_per_device(LLADA, short, sizes) <= fit.SHARE * memory * GB


def test_key_heads_do_not_limit_the_mesh_but_query_heads_do():
    grouped = dataclasses.replace(LLADA, H=28, K=4)
    assert choose_mesh(grouped, 8, 8 * GB) == {"data": 1, "fsdp": 2, "tensor": 4}


def test_a_model_that_does_not_fit_says_what_would():
    with pytest.raises(ValueError, match=r"32\.06 GB .* 4 devices, got '8\.00 GB each'; use 8"):
        choose_mesh(LLADA, 4, 8 * GB)
    with pytest.raises(ValueError, match="use devices with more memory, or dtype='int8'"):
        choose_mesh(dataclasses.replace(LLADA, H=1, K=1), 8, 1000)


def test_load_chooses(monkeypatch):
    """By what the parameters take as they are loaded."""
    monkeypatch.setattr(fit, "device_memory", lambda: 100_000)
    mesh = sj.load(GOLDENS / "llada", mesh="auto").params["norm"]["weight"].sharding.mesh
    assert tuple(mesh.shape.values()) == (1, 2, 4)
    monkeypatch.undo()
    assert fit.device_memory() > 10**8
    mesh = sj.load(GOLDENS / "llada", mesh="auto").params["norm"]["weight"].sharding.mesh
    assert tuple(mesh.shape.values()) == (8, 1, 1), "it is small: a copy for every device"


def test_bad_meshes_say_what_would_do():
    with pytest.raises(ValueError, match=r"got \(1, 1, 16\); choose sizes with a product of 1, 2"):
        sj.mesh(tensor=16)
    with pytest.raises(ValueError, match=r"got \(3, 1, 1\); .* 1, 2, 4 or 8"):
        sj.mesh(data=3)
    with pytest.raises(
        ValueError, match="divide the model's 4 heads, got 8; use 1, 2 or 4 of the 8"
    ):
        sj.load(GOLDENS / "llada", mesh=sj.mesh(tensor=8))
    six = dataclasses.replace(LLADA, H=6, K=6)
    with pytest.raises(ValueError, match="got 4; use 1 or 2 of the 8 devices, and data or fsdp"):
        fit.require_heads(six, {"data": 2, "fsdp": 1, "tensor": 4})  # 3 and 6 do not divide 8
    with pytest.raises(ValueError, match=r"mesh must name axes of .*, got 'best'"):
        sj.load(GOLDENS / "llada", mesh="best")


def test_a_mesh_may_be_words():
    mesh = (
        sj.load(GOLDENS / "llada", mesh="fsdp=2, tensor=2").params["norm"]["weight"].sharding.mesh
    )
    assert dict(mesh.shape) == {"data": 1, "fsdp": 2, "tensor": 2}
