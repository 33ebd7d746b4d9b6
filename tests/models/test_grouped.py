"""Products by groups: the way of the CPU is that of everybody else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sake_jax.models import grouped
from sake_jax.models.grouped import grouped_product

KEY = jax.random.key(0)
SIZES = {
    "even": [4, 4, 4, 4],
    "one has all": [0, 0, 300, 0],
    "some have none": [0, 17, 0, 1],
    "more groups than rows": [0, 0, 1, 0, 1, 0, 0],
    "one group": [9],
    "no rows": [0, 0],
}


def operands(sizes, dtype=jnp.float32, inner=6, outer=5):
    draw = lambda key, *shape: jax.random.normal(key, shape).astype(dtype)  # noqa: E731
    first, second = jax.random.split(KEY)
    rows, kernel = draw(first, sum(sizes), inner), draw(second, len(sizes), inner, outer)
    return rows, kernel, jnp.asarray(sizes)


@pytest.mark.parametrize("name", SIZES)
def test_blocks_are_the_ragged_product(name):
    rows, kernel, sizes = operands(SIZES[name])
    group = np.repeat(np.arange(len(SIZES[name])), SIZES[name])
    expected = np.einsum("ri,rio->ro", np.asarray(rows), np.asarray(kernel)[group])
    for way in (jax.jit(grouped_product), jax.lax.ragged_dot):
        np.testing.assert_allclose(way(rows, kernel, sizes), expected, atol=1e-5)


def test_narrow_rows_are_summed_wide():
    rows, kernel, sizes = operands([3, 5], jnp.bfloat16)
    ours, theirs = grouped_product(rows, kernel, sizes), grouped._ragged(rows, kernel, sizes)
    assert ours.dtype == theirs.dtype == jnp.float32
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_gradients_are_those_of_the_ragged_product():
    """In both operands, forwards and backwards."""
    rows, kernel, sizes = operands([2, 0, 11, 1])

    def loss(way, rows, kernel):
        return jnp.sum(jnp.sin(way(rows, kernel, sizes)))

    ours, theirs = (
        jax.grad(loss, argnums=(1, 2))(way, rows, kernel)
        for way in (grouped_product, jax.lax.ragged_dot)
    )
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    moved = jax.random.normal(KEY, rows.shape)
    _, forward = jax.jvp(lambda rows: loss(grouped_product, rows, kernel), (rows,), (moved,))
    np.testing.assert_allclose(forward, jnp.sum(moved * theirs[0]), rtol=1e-4)


def test_many_at_once():
    rows, kernel, _ = operands([2, 6])
    sizes = jnp.array([[2, 6], [8, 0], [5, 3]])
    ours = jax.vmap(grouped_product, in_axes=(None, None, 0))(rows, kernel, sizes)
    for one, own in zip(ours, sizes, strict=True):
        np.testing.assert_allclose(one, jax.lax.ragged_dot(rows, kernel, own), atol=1e-5)


@pytest.mark.parametrize("axes", [(0, None, 0), (1, None, 0), (0, None, None), (0, 0, 0)])
def test_many_at_once_inside_a_program(axes):
    """Traced, also for the devices that are not there; rows of all of them by one product."""
    rows, kernel, _ = operands([2, 6])
    sizes = jnp.array([[2, 6], [8, 0], [5, 3]])
    own = (
        jnp.stack([rows, 2 * rows, -rows], axis=axes[0]),
        jnp.stack([kernel, 3 * kernel, 1 - kernel]) if axes[1] == 0 else kernel,
        sizes if axes[2] == 0 else sizes[2],
    )
    ours = jax.jit(jax.vmap(grouped_product, in_axes=axes))(*own)
    for at, one in enumerate(ours):
        taken = [
            x if axis is None else jnp.take(x, at, axis) for x, axis in zip(own, axes, strict=True)
        ]
        np.testing.assert_allclose(one, jax.lax.ragged_dot(*taken), atol=1e-5)
    program = jax.make_jaxpr(jax.vmap(grouped_product, in_axes=axes))(*own)
    assert ("f32[24,5]" in str(program)) == (axes[1] is None), "one product of all 24 rows"


def test_the_cpu_does_not_multiply_with_every_matrix():
    """By the compiler's count, a block once: JAX's own way on a CPU costs as many times as there
    are groups."""
    rows, kernel, sizes = operands([8] * 64, inner=32, outer=32)
    flops = {
        way: jax.jit(way).lower(rows, kernel, sizes).compile().cost_analysis()["flops"]
        for way in (grouped_product, jax.lax.ragged_dot)
    }
    assert flops[grouped_product] < flops[jax.lax.ragged_dot] / 32
