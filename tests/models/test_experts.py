"""Experts on a mesh of eight devices: what one device computes, and what the devices send."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import sake_jax as sj
from sake_jax.models import TransformerConfig
from sake_jax.models.config import EncoderDecoderConfig
from sake_jax.models.encoder_decoder import NormedRouter
from sake_jax.models.experts import Experts
from sake_jax.sharding import HIDDEN, constrain, sharding
from tiers import few_quick

PLAIN = TransformerConfig(
    V=8, D=16, N=1, H=1, K=1, head_dim=16, F=24, context=8, experts=8, experts_per_token=3,
    expert_score="sigmoid", normalize_experts=True, expert_bias=True, expert_groups=4,
    groups_per_token=2, expert_scale=2.5, shared_F=8,
)  # fmt: skip
GEMMA = EncoderDecoderConfig(
    V=8, D=16, N=1, H=1, K=1, head_dim=16, F=12, context=8, kinds=("full",), full_K=1,
    full_head_dim=16, full_rotary_dim=4, reach=4, dense_F=8, experts=4, experts_per_token=2,
    window=4,
)  # fmt: skip
LAYERS = {
    "groups and a shared one": PLAIN,
    "int8": dataclasses.replace(PLAIN, quantized=True),
    "too few to split": dataclasses.replace(PLAIN, experts=5, expert_groups=1, groups_per_token=1),
    "gates and what they open as one": GEMMA,
}
MESHES = few_quick(((2, 2, 2), (8, 1, 1), (1, 4, 2), (1, 1, 8)), 1)
ROWS = 8
"""Of 5 columns: the batch is split, columns are not."""


def layer(c):
    """A layer as a function of its parameters, with these."""
    router = NormedRouter(c, rngs=nnx.Rngs(1)) if c is GEMMA else None
    graph, state = nnx.split(Experts(c, router=router, rngs=nnx.Rngs(0)))

    def filled(variable):
        draw = jax.random.normal(jax.random.key(variable.shape[0]), variable.shape)
        if variable.dtype == jnp.int8:
            return variable.replace(jnp.round(20 * draw).astype(jnp.int8))
        constant = bool(jnp.all(variable[...] == variable[...].ravel()[0]))
        return variable.replace(0.05 + 0.02 * draw) if constant else variable

    state = jax.tree.map(filled, state, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    return lambda state, x: nnx.merge(graph, state)(constrain(x, HIDDEN)), state


def spread(state, x, sizes):
    """The same on a mesh, as parameters and rows are placed."""
    mesh = sj.mesh(*sizes)

    def put(variable):
        axes = variable.get_metadata("axes")
        return variable.replace(jax.device_put(variable[...], sharding(mesh, variable.shape, axes)))

    placed = jax.tree.map(put, state, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    return placed, jax.device_put(x, sharding(mesh, x.shape, HIDDEN))


def rows_of(c, batch=ROWS):
    return jax.random.normal(jax.random.key(2), (batch, 5, c.D))


def sent(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """What each collective of a compiled program sends: its name and shapes."""
    names = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    found = re.findall(rf" = (.*?) ({names})(?:-start)?\(", text)
    return [
        (name, tuple(map(int, shape.split(","))))
        for shapes, name in found
        for shape in re.findall(r"\[([\d,]+)\]", shapes)
    ]


@pytest.mark.parametrize("sizes", MESHES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_eight_devices_compute_what_one_does(name, sizes):
    function, state = layer(LAYERS[name])
    x = rows_of(LAYERS[name])
    expected = function(state, x)
    found = jax.jit(function)(*spread(state, x, sizes))
    np.testing.assert_allclose(found, expected, atol=1e-5 * float(jnp.abs(expected).max()))


def test_a_batch_that_the_mesh_does_not_divide():
    function, state = layer(PLAIN)
    x = rows_of(PLAIN, batch=3)
    found = jax.jit(function)(*spread(state, x, (2, 2, 2)))
    np.testing.assert_allclose(found, function(state, x), atol=1e-5)


@pytest.mark.parametrize("name", ["groups and a shared one", "gates and what they open as one"])
def test_gradients_are_those_of_one_device(name):
    """Of the rows and of every parameter, where both axes of the experts are split."""
    function, state = layer(LAYERS[name])
    x = rows_of(LAYERS[name])
    slope = jax.jit(jax.grad(lambda state, x: jnp.sum(jnp.sin(function(state, x))), (0, 1)))
    expected, found = slope(state, x), slope(*spread(state, x, (2, 2, 2)))
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-4)
    idle = [leaf.shape for leaf in jax.tree.leaves(expected) if not np.any(leaf)]
    assert idle == [(8,)] * LAYERS[name].expert_bias, "the bias only chooses"


@pytest.mark.parametrize("sizes", MESHES, ids=str)
@pytest.mark.parametrize("name", ["groups and a shared one", "gates and what they open as one"])
def test_no_expert_moves_and_no_row_leaves_its_part_of_the_batch(name, sizes):
    """Results are added up, widths of rows come together; and where gates and what they open are
    split as one, their results do."""
    c = LAYERS[name]
    function, state = layer(c)
    program = jax.jit(function).lower(*spread(state, rows_of(c), sizes)).compile()
    collectives = sent(program.as_text())
    own = ROWS // sizes[0] * 5
    for kind, shape in collectives:
        assert kind in ("all-gather", "all-reduce"), (kind, shape)
        router = shape == (c.experts, c.D)
        rows = np.prod(shape[:-1]) == own
        gates = kind == "all-gather" and shape == (own * c.experts_per_token, 2 * c.F)
        dense = np.prod(shape) <= c.D * max(c.F, 8)  # the shared expert's, and scales
        assert router or rows or gates or (dense and shape[0] != c.experts), (kind, shape)
    assert bool(collectives) == (sizes[0] < 8)
