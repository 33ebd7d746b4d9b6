"""What a family's file says about it, and that everybody who asks gets the same answer."""

import dataclasses
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import FAMILIES, copied, with_config

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.conversion import (
    convert,
    families,
    family,
    model_config,
    open_checkpoint,
    save,
)
from sake_jax.conversion.families import FAMILIES as KNOWN
from sake_jax.models import ModelConfig
from sake_jax.training.objective import loss

ANCESTRAL = ("mdlm", "udlm", "sedd", "sedd_uniform", "radd")
SAMPLERS = (
    dict.fromkeys(ANCESTRAL, "ancestral")
    | dict.fromkeys(("bd3lm", "sdar", "llada2"), "block")
    | {"diffusion_gemma": "revising"}
)
NEVER_PREDICT_THE_MASK = ("mdlm", "bd3lm", "sedd", "sedd_uniform", "radd")
COUNT_TOKENS = ("dream", "gpt2", "sdar", "llada2", "diffusion_gemma")


def facts(config: ModelConfig) -> tuple:
    return config.sampler, config.predicts_mask, config.positions, config.tokenizer_class


@pytest.mark.parametrize("name", FAMILIES)
def test_facts_of_a_family_are_those_of_its_models(name):
    config = open_checkpoint(GOLDENS / name).config
    assert config.sampler == SAMPLERS.get(name, "masked")
    assert config.predicts_mask == (name not in NEVER_PREDICT_THE_MASK)
    assert config.positions == ("tokens" if name in COUNT_TOKENS else "columns")
    assert config.tokenizer_class == ("Qwen2Tokenizer" if name == "dream" else None)
    assert facts(config) == facts(family(config.family).model(config.network))


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_written_is_read_as_the_same_model(name, tmp_path):
    """`describe` is the inverse of `config`, and the weights come back bit for bit."""
    lm = sj.load(GOLDENS / name)
    save(lm.config, lm.params, tmp_path / "saved")
    again = sj.load(tmp_path / "saved")
    assert again.config == lm.config
    chex.assert_trees_all_equal(again.params, lm.params)


def test_every_field_of_a_config_is_written():
    """Also those in which the goldens have the default."""
    bd3lm = open_checkpoint(GOLDENS / "bd3lm").config
    without = dataclasses.replace(bd3lm.network, stored_limits=False)
    moe = open_checkpoint(GOLDENS / "llada_moe").config
    one = dataclasses.replace(moe.network, experts_per_token=1)
    sedd = open_checkpoint(GOLDENS / "sedd").config
    plain = dataclasses.replace(sedd.network, scale_by_sigma=False, noise=sj.LogLinear(0.01))
    radd = open_checkpoint(GOLDENS / "radd").config
    other = dataclasses.replace(radd.network, noise=sj.Geometric(0.01, 7.0))
    for config, network in ((bd3lm, without), (moe, one), (sedd, plain), (radd, other)):
        changed = dataclasses.replace(config, network=network)
        own = family(config.family)
        assert own.config(json.loads(json.dumps(own.describe(changed)))) == changed
    scaled = dataclasses.replace(moe.network, normalize_experts=True)
    with pytest.raises(ValueError, match="never scales"):
        family("llada_moe").describe(dataclasses.replace(moe, network=scaled))


@pytest.mark.parametrize("name", ["mdlm", "bd3lm", "dream", "sedd", "radd"])
def test_a_converted_checkpoint_has_its_familys_facts(name, tmp_path):
    """The manifest does not keep them, so checkpoints that were converted before have them too."""
    manifest = convert(copied(name, tmp_path), tmp_path / "converted")
    stored = json.loads((tmp_path / "converted" / "manifest.json").read_text())
    assert stored.keys() == {
        "family", "quantized", "prefix", "source", "units", "written_by", "format"
    }  # fmt: skip
    assert manifest.family == name
    assert sj.load(tmp_path / "converted").config == open_checkpoint(GOLDENS / name).config


def test_models_by_name():
    assert model_config("GSAI-ML/LLaDA-8B-Instruct") == model_config("llada-8b")
    assert model_config("tinystories").network.D == 256
    assert model_config("kuleshov-group/mdlm-owt").sampler == "ancestral"
    assert model_config(GOLDENS / "udlm") == open_checkpoint(GOLDENS / "udlm").config
    with pytest.raises(ValueError, match="the model must be llada-8b"):
        model_config("no such model")


def test_a_family_made_from_another_does_not_take_its_models_names(monkeypatch):
    """Else the one that is listed last would say how LLaDA-8B is sampled."""
    own = dataclasses.replace(family("llada"), name="mine", sampler="ancestral")
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES, own))
    with pytest.raises(ValueError, match=r"must belong to one family, got .*'llada-8b', 'llada'"):
        model_config("llada-8b")
    own = dataclasses.replace(own, published={})
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES[:-1], own))
    assert model_config("llada-8b").sampler == "masked"


def test_families_that_name_no_architecture(tmp_path):
    """SEDD and RADD are known by the parts of their configs; others still have to be named."""
    small, medium = model_config("louaaron/sedd-small"), model_config("sedd-medium")
    assert (small.network.V, small.mask_id, small.network.scores) == (50_258, 50_257, True)
    assert (medium.network.N, medium.network.D, medium.network.H) == (24, 1024, 16)
    assert open_checkpoint(GOLDENS / "sedd_uniform").config.mask_id is None
    assert open_checkpoint(GOLDENS / "radd").config.network.cond_dim == 0
    other = with_config(copied("radd", tmp_path), model={"type": "ddit_other"})
    with pytest.raises(ValueError, match="must list one of"):
        open_checkpoint(other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graph": {"type": "tree"}}, "type in config.json must be 'absorb' or 'uniform'"),
        ({"graph": {"type": "uniform"}}, "scale_by_sigma is for the graph 'absorb'"),
        ({"noise": {"type": "linear"}}, "type in config.json must be 'loglinear' or 'geometric'"),
    ],
)
def test_sedd_refuses_what_it_does_not_compute(changes, message, tmp_path):
    folder = with_config(copied("sedd", tmp_path), **changes)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(folder)


def test_no_name_is_two_families():
    for names in (
        [known.name for known in KNOWN],
        [name for known in KNOWN for name in known.architectures],
        [name for known in KNOWN for name in known.published],
    ):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["llada", "dream", "mdlm", "bd3lm"])
def test_training_and_likelihood_agree_on_whether_the_mask_is_predicted(name):
    """A larger logit of the mask token costs both of them, or neither."""
    lm, key = sj.load(GOLDENS / name), jax.random.key(0)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 200, (2, 8)))
    output = lm.params["output"]["rows"]
    louder = lm.params | {"output": {"rows": output.at[lm.config.mask_id].set(3 * output[0])}}
    trained, scored = [], []
    for params in (lm.params, louder):
        trained.append(float(loss(lm.config, "exact", params, tokens, key)))
        model = sj.LanguageModel(lm.config, params)
        scored.append(float(sj.bound(model, tokens.tolist(), key=key, draws=4).value.mean()))
    predicted = name not in NEVER_PREDICT_THE_MASK
    assert (trained[0] != trained[1]) == predicted
    assert (scored[0] != scored[1]) == predicted
