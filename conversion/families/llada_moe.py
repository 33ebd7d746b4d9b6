"""LLaDA-MoE 7B-A1B. Its `model_type` is LLaDA's; `architectures` tells them apart."""

from collections.abc import Mapping
from typing import Any

from sake_jax.checks import require
from sake_jax.conversion.families import llama
from sake_jax.conversion.families.family import Family, expect, tokens, value
from sake_jax.conversion.rules import Rule
from sake_jax.models import ModelConfig, TransformerConfig

MASK_ID = 156895
"""LLaDA-MoE-7B-A1B's, for configs that do not name one."""

FIXED = {
    "attention_bias": False,
    "clip_qkv": None,
    "hidden_act": "silu",
    "moe_router_enable_expert_bias": (False, None),
    "moe_router_score_function": ("softmax", None),
    "partial_rotary_factor": (1, None),
    "qk_layernorm": True,
    "routed_scaling_factor": (1, None),
    "router_num_group": None,
    "router_topk_group": None,
    "shared_expert_intermediate_size": None,
}


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, FIXED)
    sparse = c.get("moe_layer_freq", 1)
    all_sparse = sparse == 1 or (isinstance(sparse, list) and all(one == 1 for one in sparse))
    rule, remedy = "every layer must have experts", "this variant is not supported"
    require(all_sparse, rule, sparse, remedy)
    network = llama.network(
        c,
        qk_norm=True,
        F=value(c, "expert_intermediate_size"),
        experts=value(c, "num_experts"),
        experts_per_token=value(c, "num_experts_per_tok"),
        normalize_experts=bool(c.get("norm_topk_prob")),
        eps=c.get("rms_norm_eps", 1e-5),
    )
    mask = c.get("mask_token_id", MASK_ID if network.V > MASK_ID else None)
    return FAMILY.model(network, mask_id=mask, **tokens(c))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    c = config.network
    assert isinstance(c, TransformerConfig)
    return llama.describe(config, "LLaDAMoEModelLM", "llada") | {
        "expert_intermediate_size": c.F,
        "num_experts": c.experts,
        "num_experts_per_tok": c.experts_per_token,
        "norm_topk_prob": c.normalize_experts,
        "qk_layernorm": True,
    }


def rules(c: ModelConfig) -> list[Rule]:
    """Llama's table, with a router and experts in place of the MLP."""
    layer = "model.layers.{layer}.mlp"
    return [
        *llama.rules(c),
        Rule(f"{layer}.gate.weight", "blocks.mlp.router.kernel"),
        *(
            Rule(f"{layer}.experts.{{expert}}.{theirs}.weight", f"blocks.mlp.{ours}.kernel", True)
            for theirs, ours in llama.MLP.items()
        ),
    ]


FAMILY = Family(
    name="llada_moe",
    architectures=("LLaDAMoEModel", "LLaDAMoEModelLM"),
    config=config,
    describe=describe,
    rules=rules,
)
