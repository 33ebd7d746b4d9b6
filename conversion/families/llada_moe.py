"""LLaDA-MoE 7B-A1B. Its `model_type` is LLaDA's; `architectures` tells them apart."""

from collections.abc import Mapping
from typing import Any

from sake_jax.checks import require
from sake_jax.conversion.families import llama
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import (
    UNSUPPORTED,
    expect,
    positive,
    published_mask,
    size,
    special_tokens,
)
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
    """Our config from the checkpoint's.

    `norm_topk_prob` is not looked at: the family's own code has the entry and never scales the
    weights of the chosen experts, whatever it says.
    """
    expect(c, FIXED)
    sparse = c.get("moe_layer_freq", 1)
    all_sparse = sparse == 1 or (isinstance(sparse, list) and all(one == 1 for one in sparse))
    require(all_sparse, "every layer must have experts", sparse, UNSUPPORTED)
    network = llama.network(
        c,
        qk_norm=True,
        F=size(c, "expert_intermediate_size"),
        experts=size(c, "num_experts"),
        experts_per_token=size(c, "num_experts_per_tok"),
        eps=positive(c, "rms_norm_eps", default=1e-5),
    )
    mask_id = published_mask(c, network.V, MASK_ID)
    return FAMILY.model(network, mask_id=mask_id, **special_tokens(c, network.V))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    c = config.network
    assert isinstance(c, TransformerConfig)
    rule, remedy = "LLaDA-MoE never scales its experts' weights", "set normalize_experts=False"
    require(not c.normalize_experts, rule, "a network that does", remedy)
    return llama.describe(config, "LLaDAMoEModelLM", "llada") | {
        "expert_intermediate_size": c.F,
        "num_experts": c.experts,
        "num_experts_per_tok": c.experts_per_token,
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
