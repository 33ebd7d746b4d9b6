"""LLaDA-MoE 7B-A1B. Its `model_type` is LLaDA's; `architectures` tells them apart."""

from collections.abc import Mapping
from typing import Any

from sake_jax.checks import require
from sake_jax.conversion.families import llama
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import (
    ANOTHER,
    UNSUPPORTED,
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

MASK_ID = 156895
"""LLaDA-MoE-7B-A1B's, for configs that do not name one."""

FIXED = {
    "attention_bias": False,
    "clip_qkv": None,
    "hidden_act": "silu",
    "moe_router_enable_expert_bias": (False, None),
    "moe_router_score_function": ("softmax", None),
    "router_num_group": None,
    "router_topk_group": None,
}


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's.

    `norm_topk_prob` and `routed_scaling_factor` are not looked at: the family's own code has the
    entries and never scales the weights of the chosen experts, whatever they say.
    """
    expect(c, FIXED)
    dense = _dense_layers(c)
    network = llama.network(
        c,
        qk_norm=flag(c, "qk_layernorm", default=False),
        rotary_dim=rotary_dim(c),
        F=size(c, "expert_intermediate_size"),
        experts=size(c, "num_experts"),
        experts_per_token=size(c, "num_experts_per_tok"),
        shared_F=count(c, "shared_expert_intermediate_size", default=0),
        dense_layers=dense,
        dense_F=size(c, "dense_intermediate_size") if dense else 0,
        eps=positive(c, "rms_norm_eps", default=1e-5),
    )
    mask_id = published_mask(c, network.V, MASK_ID)
    return FAMILY.model(network, mask_id=mask_id, **special_tokens(c, network.V))


def _dense_layers(c: Mapping[str, Any]) -> int:
    """How many layers have a dense MLP; only the first ones may."""
    layers, given = size(c, "num_hidden_layers"), c.get("moe_layer_freq")
    if given in (None, 1):
        return 0
    rule = f"moe_layer_freq in config.json must have a 0 or a 1 for each of the {layers} layers"
    right = isinstance(given, list) and len(given) == layers and all(x in (0, 1) for x in given)
    require(right, rule, given, ANOTHER)
    rule = "layers without experts must stand before those with experts"
    require(given == sorted(given), rule, given, UNSUPPORTED)
    return given.count(0)


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    c = config.network
    assert isinstance(c, TransformerConfig)
    rule, remedy = "LLaDA-MoE never scales its experts' weights", "set normalize_experts=False"
    require(not c.normalize_experts, rule, "a network that does", remedy)
    return llama.describe(config, "LLaDAMoEModelLM", "llada") | {
        "dense_intermediate_size": c.dense_F or c.F,
        "expert_intermediate_size": c.F,
        "moe_layer_freq": [0] * c.dense_layers + [1] * (c.N - c.dense_layers),
        "num_experts": c.experts,
        "num_experts_per_tok": c.experts_per_token,
        "partial_rotary_factor": describe_rotary(c),
        "qk_layernorm": c.qk_norm,
        "shared_expert_intermediate_size": c.shared_F or None,
    }


def rules(c: ModelConfig) -> list[Rule]:
    """Llama's table, with a router and experts in place of most layers' MLP."""
    net = c.network
    assert isinstance(net, TransformerConfig)
    experts = llama.experts()
    if net.shared_F:  # it stands beside `mlp`, not inside
        experts += llama.mlp("shared_expert", "mlp.shared")
    table, every = llama.outside(net), llama.every_layer(net)
    if net.dense_layers:
        table += llama.layers("first", [*every, *llama.mlp("mlp", "mlp")])
    return table + llama.layers("blocks", [*every, *experts], net.dense_layers)


FAMILY = Family(
    name="llada_moe",
    architectures=("LLaDAMoEModel", "LLaDAMoEModelLM"),
    config=config,
    describe=describe,
    rules=rules,
)
