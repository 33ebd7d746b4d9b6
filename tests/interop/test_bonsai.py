"""bonsai's LLaDA, by a stand-in with its layout and the weights of a checkpoint."""

import types

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.conversion.families.llada import BLOCK
from sake_jax.interop import bonsai
from sake_jax.models import flatten_params


class Layer(nnx.Module):
    """A linear layer, a norm, an embedding: one array by bonsai's name for it."""

    def __init__(self, **arrays):
        for name, array in arrays.items():
            setattr(self, name, nnx.Param(jnp.asarray(array)))


class Block(nnx.Module):
    def __init__(self, layers):
        for name, layer in layers.items():
            setattr(self, name, layer)


class LLaDAModel(nnx.Module):
    def __init__(self, lm, norm="weight"):
        c, flat = lm.config.network, flatten_params(lm.params)
        self.config = types.SimpleNamespace(
            d_model=c.D,
            n_heads=c.H,
            n_kv_heads=c.K,
            n_layers=c.N,
            mlp_hidden_size=c.F,
            max_sequence_length=c.context,
            rope_theta=c.rope_theta,
            rms_norm_eps=c.eps,
            vocab_size=c.V,
            embedding_size=c.V,
            include_bias=False,
        )
        self.wte = Layer(embedding=flat["input.rows"])
        self.ln_f = Layer(**{norm: flat["norm.weight"]})
        if "output.rows" in flat:
            self.ff_out = Layer(kernel=flat["output.rows"].T)

        def layer(theirs, ours, at):
            array = flat[f"blocks.{ours}"][at]
            return Layer(**({norm: array} if "norm" in theirs else {"kernel": array.T}))

        self.blocks = nnx.List(
            [
                Block({t.removesuffix(".weight"): layer(t, o, at) for t, o in BLOCK.items()})
                for at in range(c.N)
            ]
        )


@pytest.fixture(scope="module")
def lm():
    return sj.load(GOLDENS / "llada")


@pytest.mark.parametrize("norm", ["weight", "scale"])
def test_its_arrays_are_taken_over(lm, norm, golden):
    ids = {"mask_id": lm.config.mask_id, "end_id": lm.config.eos_id}
    ours = bonsai.load_model(LLaDAModel(lm, norm), folder=GOLDENS / "llada", **ids)
    assert ours.config.network == lm.config.network
    assert (ours.config.mask_id, ours.config.eos_id) == (lm.config.mask_id, lm.config.eos_id)
    theirs, mine = flatten_params(lm.params), flatten_params(ours.params)
    assert theirs.keys() == mine.keys()
    for path, array in theirs.items():
        np.testing.assert_array_equal(mine[path], array)
    tokens = jnp.arange(8)[None]
    np.testing.assert_array_equal(ours.logits(tokens), lm.logits(tokens))


def test_another_config_is_refused(lm):
    model = LLaDAModel(lm)
    model.config.mlp_hidden_size *= 2
    with pytest.raises(ValueError, match="must have the shape"):
        bonsai.load_model(model, mask_id=lm.config.mask_id, end_id=None)
