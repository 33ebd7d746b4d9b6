"""Products of narrow numbers, and their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sake_jax.precision import product

SHAPES = {
    "bwd,vd->bwv": ((2, 3, 8), (5, 8)),
    "bwv,vd->bwd": ((2, 3, 5), (5, 8)),
    "ai,oi->ao": ((4, 8), (5, 8)),
}


@pytest.mark.parametrize("axes", SHAPES)
def test_a_narrow_product_has_the_gradient_of_a_wide_one(axes):
    keys = jax.random.split(jax.random.key(0), 3)
    wide = [jax.random.normal(key, shape) for key, shape in zip(keys, SHAPES[axes], strict=False)]
    # What bfloat16 can hold, so that only the gradient's own rounding is left.
    narrow = [x.astype(jnp.bfloat16) for x in wide]
    wide = [x.astype(jnp.float32) for x in narrow]
    pull = jax.random.normal(keys[2], product(axes, *wide).shape)

    def pulled(left, table):
        return jnp.sum(pull * product(axes, left, table))

    assert product(axes, *narrow).dtype == jnp.float32
    found = jax.grad(pulled, (0, 1))(*narrow)
    wanted = jax.grad(pulled, (0, 1))(*wide)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == jnp.bfloat16
        np.testing.assert_allclose(mine.astype(jnp.float32), theirs, rtol=2e-2, atol=3e-2)


def test_a_narrow_products_gradient_multiplies_narrow_numbers():
    """In float32 it would take twice the time."""
    left, table = jnp.ones((4, 8), jnp.bfloat16), jnp.ones((5, 8), jnp.bfloat16)
    lossy = lambda left, table: jnp.sum(product("ai,oi->ao", left, table))  # noqa: E731
    program = jax.make_jaxpr(jax.grad(lossy, (0, 1)))(left, table)
    dots = [e for e in program.eqns if e.primitive.name == "dot_general"]
    assert len(dots) == 3
    for dot in dots:
        assert {str(given.aval.dtype) for given in dot.invars} == {"bfloat16"}
