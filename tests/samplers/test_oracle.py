"""Samples follow the model's own joint distribution, where the order of writing lets them.

A tabular joint over V^L whose conditionals are exact stands in for the network. One token a step
at temperature 1 must then reproduce the joint for every order that does not look at the draw.
Writing the draw that came out most confident does look at it: likely tokens are written more
often than they should be. The test shows that it can see such a bias.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax import Node, reveal
from sake_jax.core import LOWEST, Tables
from sake_jax.samplers import gumbel

V, L, DRAWS = 3, 3, 200_000
MASK = V


class Oracle(Node):
    """log p(x_i | the written columns), by summing a joint over all that agree with them."""

    affine: ClassVar[bool] = True

    def read(self, params, view, cache):
        outcomes = jnp.stack(jnp.meshgrid(*[jnp.arange(V)] * L, indexing="ij"), -1).reshape(-1, L)
        agrees = (view.tokens[:, None, :] == outcomes[None]) | view.open[:, None, :]
        weight = jnp.where(jnp.all(agrees, axis=-1), params.reshape(-1)[None], 0.0)
        ones = jax.nn.one_hot(outcomes, V + 1)
        joint = jnp.einsum("bo,olv->blv", weight, ones, precision="highest")
        return jnp.maximum(jnp.log(joint), LOWEST), None

    def head(self, params, rows):
        return rows

    def tables(self, params):
        return Tables(jnp.eye(V + 1), jnp.eye(V + 1))


@pytest.fixture(scope="module")
def joint():
    weights = np.random.default_rng(0).gamma(0.5, size=(V,) * L) + 0.02
    return jnp.asarray(weights / weights.sum(), jnp.float32)


def chi_square(joint, sampler, draws=DRAWS):
    """Pearson's statistic of that many samples, V^L - 1 degrees of freedom."""
    canvas = sj.canvas([[]], L, mask_id=MASK, samples=draws)
    done, _ = sj.run(sampler, joint, jax.random.key(1), canvas)
    codes = np.asarray(done.tokens) @ (V ** np.arange(L)[::-1])
    counts = np.bincount(codes, minlength=V**L)
    expected = draws * np.asarray(joint, np.float64).reshape(-1)
    return float(np.sum((counts - expected) ** 2 / expected))


# 26 degrees of freedom: 54 is exceeded once in a thousand.
FAIR = {"random": reveal.random, "margin": reveal.margin, "entropy": reveal.low_entropy}


@pytest.mark.parametrize("order", FAIR)
def test_orders_that_do_not_look_at_the_draw_reproduce_the_joint(order, joint):
    assert chi_square(joint, sj.masked(Oracle(), length=L, reveal=FAIR[order])) < 54


def test_confidence_of_the_draw_does_not(joint):
    assert chi_square(joint, sj.masked(Oracle(), length=L)) > 1000


def test_semi_autoregressive_blocks_do_too(joint):
    assert chi_square(joint, sj.masked(Oracle(), length=L, block=1)) < 54


@pytest.mark.slow
def test_ancestral_sampling_in_many_steps_comes_close(joint):
    """Several positions may fall into one step; with 200 steps that is rare."""
    many = sj.ancestral(Oracle(), length=L, steps=200)
    few = sj.ancestral(Oracle(), length=L, steps=2)
    assert chi_square(joint, many, 10_000) < 54 < chi_square(joint, few, 10_000)


@pytest.mark.slow
def test_the_tail_of_a_large_vocabulary_is_drawn_as_often_as_it_should():
    """One token e^17 times as likely as each of 126,464 others: they win 0.5 % of the draws.

    JAX's default Gumbel noise ends near 16, so that with it they would hardly ever win.
    """
    rare, gap, draws = 126_464, 17.0, 4_000
    logits = jnp.concatenate([jnp.array([gap]), jnp.zeros(rare)])
    view = sj.testing.toy_view(0, rows=1).replace(width=1)
    keys = jax.random.split(jax.random.key(0), draws)

    def wins(noise) -> int:
        one = lambda key: jnp.argmax(logits + noise(key)) > 0  # noqa: E731
        return int(jnp.sum(jax.jit(lambda keys: jax.lax.map(one, keys))(keys)))

    chance = rare * np.exp(-gap) / (1 + rare * np.exp(-gap))
    spread = 3 * np.sqrt(draws * chance)
    ours = wins(lambda key: gumbel(key[None], view, rare + 1)[0, 0])
    assert draws * chance - spread < ours < draws * chance + spread
    low = wins(lambda key: jax.random.gumbel(key, (rare + 1,), jnp.float32, mode="low"))
    assert low < draws * chance - spread, "or this test could not tell"
