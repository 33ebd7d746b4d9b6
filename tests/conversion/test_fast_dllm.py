"""Fast-dLLM v2 has no golden of its own: it is held to the families that it is made of."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
from checkpoints import copied, with_config

import sake_jax as sj
from networks import close
from sake_jax.conversion import family, model_config
from sake_jax.models import TransformerConfig, aligned_features, init, network_input

KEY = jax.random.key(0)
LAYOUT = {"architectures": ["Fast_dLLM_QwenForCausalLM"], "mask_token_id": 5}


def test_blocks_of_one_are_qwen2(tmp_path, golden):
    """Its tensors are Qwen2's; a column that sees itself and those before it is causal."""
    g = golden("qwen2/golden.npz")
    folder = with_config(copied("qwen2", tmp_path), bd_size=1, **LAYOUT)
    lm = sj.load(folder)
    assert (lm.config.family, lm.config.sampler, lm.config.mask_id) == ("fast_dllm", "block", 5)
    plain = dataclasses.replace(lm.config.network, shifted=False)
    attend = jnp.asarray(g["attention_mask"], bool)
    inputs = network_input(lm.config, jnp.asarray(g["input_ids"]), attend)
    logits = lm.denoiser.head(lm.params, aligned_features(plain, lm.params, inputs))
    close(logits, g["logits"], where=attend)


def test_rows_are_those_of_sdars_network_one_column_later():
    """The same network both ways: the first token of a block comes from the block before."""
    config = TransformerConfig(
        V=32, D=16, N=2, H=4, K=2, head_dim=4, F=24, context=32, qkv_bias=True, block_size=4
    )
    params = init(config, KEY)
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 32, (2, 12)))
    inputs = network_input(family("sdar").model(config), ids)
    rows = aligned_features(config, params, inputs)
    shifted = dataclasses.replace(config, shifted=True)
    later = aligned_features(shifted, params, inputs)
    np.testing.assert_array_equal(later[:, 1:], rows[:, :-1])


def test_the_cache_changes_no_token_and_descriptions_come_back(tmp_path):
    folder = with_config(copied("qwen2", tmp_path), bd_size=4, **LAYOUT)
    lm = sj.load(folder)
    own = family("fast_dllm")
    assert own.config(json.loads(json.dumps(own.describe(lm.config)))) == lm.config
    assert model_config("Efficient-Large-Model/Fast_dLLM_v2_7B").network.block_size == 32
    rule = sj.reveal.sub_blocks(sj.reveal.threshold(0.9), 2)
    start = sj.canvas(
        [[1, 2, 3, 4, 6], [7]], 8, mask_id=5, pad_id=0, align=4, samples=2, positions="tokens"
    )
    tokens = [
        np.asarray(sj.run(sampler, lm.params, KEY, start)[0].tokens)
        for sampler in (sj.block(lm, length=8, reveal=rule, cache=c) for c in ("exact", "none"))
    ]
    np.testing.assert_array_equal(*tokens)
    assert (tokens[0][:, start.generation_start :] != 5).all()
