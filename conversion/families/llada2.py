"""LLaDA2.0 and 2.1 (arXiv 2512.15745): experts behind a sigmoid gate, block after block.

Both have the same network; 2.1 is drawn with a loop that edits what it has written.
"""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import llama
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import (
    count,
    describe_rotary,
    expect,
    flag,
    positive,
    published_mask,
    rotary_dim,
    size,
    special_tokens,
)
from sake_jax.conversion.rules import Rule
from sake_jax.models import ModelConfig, TransformerConfig

MASK_ID, BLOCK = 156_895, 32
"""Of the published models, whose configs name neither."""

EMBEDDING = "model.word_embeddings.weight"
FIXED = {
    "hidden_act": "silu",
    "norm_head": False,
    "norm_topk_prob": True,
    "score_function": "sigmoid",
    "use_bias": False,
    "use_sliding_window": False,
}
ATTENTION = {
    "query_key_value": "qkv.kernel",
    "dense": "out.kernel",
    "query_layernorm": "query_norm.weight",
    "key_layernorm": "key_norm.weight",
}


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, FIXED)
    width, chosen = size(c, "moe_intermediate_size"), size(c, "num_experts_per_tok")
    dense = count(c, "first_k_dense_replace", default=0)
    network = llama.network(
        c,
        F=width,
        qkv_bias=flag(c, "use_qkv_bias", default=False),
        fused_qkv=True,
        qk_norm=flag(c, "use_qk_norm", default=True),
        rotary_dim=rotary_dim(c),
        experts=size(c, "num_experts"),
        experts_per_token=chosen,
        normalize_experts=chosen > 1,
        expert_score="sigmoid",
        expert_bias=flag(c, "moe_router_enable_expert_bias", default=True),
        expert_groups=size(c, "n_group"),
        groups_per_token=size(c, "topk_group"),
        expert_scale=positive(c, "routed_scaling_factor", default=1.0),
        shared_F=width * count(c, "num_shared_experts", default=0),
        dense_layers=dense,
        dense_F=size(c, "intermediate_size") if dense else 0,
        block_size=size(c, "block_size", default=BLOCK),
    )
    mask_id = published_mask(c, network.V, MASK_ID)
    return FAMILY.model(network, mask_id=mask_id, **special_tokens(c, network.V))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    c = config.network
    assert isinstance(c, TransformerConfig)
    return llama.describe(config, "LLaDA2MoeModelLM", "llada2_moe") | {
        "block_size": c.block_size,
        "first_k_dense_replace": c.dense_layers,
        "intermediate_size": c.dense_F or c.F,
        "moe_intermediate_size": c.F,
        "moe_router_enable_expert_bias": c.expert_bias,
        "n_group": c.expert_groups,
        "norm_topk_prob": True,
        "num_experts": c.experts,
        "num_experts_per_tok": c.experts_per_token,
        "num_shared_experts": c.shared_F // c.F,
        "partial_rotary_factor": describe_rotary(c),
        "routed_scaling_factor": c.expert_scale,
        "score_function": "sigmoid",
        "topk_group": c.groups_per_token,
        "use_qk_norm": c.qk_norm,
        "use_qkv_bias": c.qkv_bias,
    }


def rules(config: ModelConfig) -> list[Rule]:
    """The rule table; the first, dense layers are a stack of their own."""
    c = config.network
    assert isinstance(c, TransformerConfig)
    table, every = llama.outside(c, EMBEDDING), _every_layer(c)
    if c.dense_layers:
        table += llama.layers("first", [*every, *llama.mlp("mlp", "mlp")])
    return table + llama.layers("blocks", [*every, *_experts(c)], c.dense_layers)


def _every_layer(c: TransformerConfig) -> list[Rule]:
    has = {"query_layernorm": c.qk_norm, "key_layernorm": c.qk_norm}
    rules = [Rule(f"{theirs}.weight", f"{ours}.weight") for theirs, ours in llama.NORMS.items()]
    rules += [
        Rule(f"attention.{theirs}.weight", f"attention.{ours}")
        for theirs, ours in ATTENTION.items()
        if has.get(theirs, True)
    ]
    bias = Rule("attention.query_key_value.bias", "attention.qkv.bias")
    return [*rules, bias] if c.qkv_bias else rules


def _experts(c: TransformerConfig) -> list[Rule]:
    rules = llama.experts()
    rules += [Rule("mlp.gate.expert_bias", "mlp.router.bias")] if c.expert_bias else []
    return rules + (llama.mlp("mlp.shared_experts", "mlp.shared") if c.shared_F else [])


SHARED = {
    "eos_token_id": 156_892,
    "first_k_dense_replace": 1,
    "head_dim": 128,
    "max_position_embeddings": 32_768,
    "n_group": 8,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 4,
    "num_shared_experts": 1,
    "pad_token_id": 156_892,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-6,
    "rope_theta": 600_000,
    "routed_scaling_factor": 2.5,
    "topk_group": 4,
    "vocab_size": 157_184,
}
MINI = SHARED | {
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "num_attention_heads": 16,
    "num_hidden_layers": 20,
}
FLASH = SHARED | {
    "hidden_size": 4096,
    "intermediate_size": 9216,
    "moe_intermediate_size": 1024,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
}

FAMILY = Family(
    name="llada2",
    architectures=("LLaDA2MoeModelLM",),
    config=config,
    describe=describe,
    rules=rules,
    embedding=EMBEDDING,
    published={
        "llada2-mini": MINI,
        "llada2.0-mini": MINI,
        "llada2.1-mini": MINI,
        "llada2.0-flash": FLASH,
        "llada2.1-flash": FLASH,
    },
    sampler="block",
    positions="tokens",
)
