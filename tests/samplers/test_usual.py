"""What a family is sampled with."""

import pytest

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.samplers.plans import Blocks, Descent
from sake_jax.samplers.processes import Absorbing, Identity
from sake_jax.samplers.usual import usual

FAMILIES = {
    "mdlm": (Absorbing, Descent),
    "bd3lm": (Identity, Blocks),
    "llada": (Identity, Blocks),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_its_own_sampler(family):
    made = usual(sj.load(GOLDENS / family), length=8)
    assert (type(made.process), type(made.plan)) == FAMILIES[family]
    assert made.plan.steps >= made.plan.length == 8


def test_blocks_steps_and_another_kind():
    lm = sj.load(GOLDENS / "llada")
    assert usual(lm, length=64).plan == sj.masked(lm, length=64, block=32).plan
    assert usual(lm, length=8).plan == sj.masked(lm, length=8).plan
    odd = usual(lm, length=8, block=4, steps=4, cache="dual")
    assert odd.plan == sj.masked(lm, length=8, block=4, steps=4, cache="dual").plan
    other = usual(lm, length=8, kind="ancestral", steps=3)
    assert other.plan == sj.ancestral(lm, length=8, steps=3).plan
    with pytest.raises(ValueError, match="block is for masked decoding"):
        usual(lm, length=8, kind="ancestral", block=4)
    with pytest.raises(ValueError, match="sampler must be one of"):
        usual(lm, length=8, kind="magic")
