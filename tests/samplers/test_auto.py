"""What a family is sampled with."""

import pytest

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.samplers.plans import Blocks, Descent
from sake_jax.samplers.processes import Absorbing, Identity
from sake_jax.samplers.scores import AbsorbingScore, UniformScore

FAMILIES = {
    "mdlm": (Absorbing, Descent),
    "sedd": (AbsorbingScore, Descent),
    "sedd_uniform": (UniformScore, Descent),
    "radd": (Absorbing, Descent),
    "bd3lm": (Identity, Blocks),
    "llada": (Identity, Blocks),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_its_own_sampler(family):
    made = sj.sampler_for(sj.load(GOLDENS / family), length=8)
    assert (type(made.process), type(made.plan)) == FAMILIES[family]
    assert made.plan.steps >= made.plan.length == 8


def test_blocks_steps_and_another_kind():
    lm = sj.load(GOLDENS / "llada")
    assert sj.sampler_for(lm, length=64).plan == sj.masked(lm, length=64, block=32).plan
    assert sj.sampler_for(lm, length=8).plan == sj.masked(lm, length=8, block=8).plan
    odd = sj.sampler_for(lm, length=8, block=4, steps=4, cache="dual")
    assert odd.plan == sj.masked(lm, length=8, block=4, steps=4, cache="dual").plan
    other = sj.sampler_for(lm, length=8, kind="ancestral", steps=3)
    assert other.plan == sj.ancestral(lm, length=8, steps=3).plan
    with pytest.raises(ValueError, match="block is for masked, block or revising decoding"):
        sj.sampler_for(lm, length=8, kind="ancestral", block=4)
    with pytest.raises(ValueError, match="cache is for masked, block or revising decoding"):
        sj.sampler_for(lm, length=8, kind="ancestral", cache="dual")
    with pytest.raises(ValueError, match="speed must be an option of a sampler"):
        sj.sampler_for(lm, length=8, speed=2)
    with pytest.raises(ValueError, match="sampler must be one of"):
        sj.sampler_for(lm, length=8, kind="magic")


@pytest.mark.parametrize(
    ("family", "words", "preset", "options"),
    [
        ("llada", {"length": 64}, sj.masked, {}),
        ("llada", {"length": 8}, sj.masked, {}),
        ("llada", {"length": 64, "block": 16, "steps": 32}, sj.masked, {"block": 16, "steps": 32}),
        ("llada", {"length": 64, "cache": "dual"}, sj.masked, {"cache": "dual"}),
        ("mdlm", {"length": 8}, sj.ancestral, {}),
        ("mdlm", {"length": 8, "steps": 5}, sj.ancestral, {"steps": 5}),
        ("bd3lm", {"length": 8}, sj.block, {}),
        ("bd3lm", {"length": 8, "steps": 4}, sj.block, {"steps": 4}),
        ("diffusion_gemma", {"length": 12}, sj.revising, {}),
    ],
)
def test_a_preset_means_the_same_from_python_and_from_the_command_line(
    family, words, preset, options
):
    lm = sj.load(GOLDENS / family)
    made, wanted = sj.Request(**words).build(lm), preset(lm, length=words["length"], **options)
    assert made.plan == wanted.plan
    assert made.process == wanted.process
    assert made.reveal == wanted.reveal
    assert made.reuse == wanted.reuse


def test_blocks_are_of_32_columns_where_these_divide_the_length():
    lm = sj.load(GOLDENS / "llada")
    assert sj.masked(lm, length=96).plan == sj.masked(lm, length=96, block=32).plan
    assert sj.masked(lm, length=48).plan == sj.masked(lm, length=48, block=48).plan
