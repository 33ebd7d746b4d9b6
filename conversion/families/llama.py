"""Llama, as SmolLM2 has it: a causal judge. Its names are those of most transformers models."""

from collections.abc import Mapping
from typing import Any

from sake_jax.checks import require
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import (
    UNSUPPORTED,
    describe_tokens,
    expect,
    flag,
    head_width,
    positive,
    size,
    special_tokens,
)
from sake_jax.conversion.rules import Rule
from sake_jax.models import ModelConfig, TransformerConfig

FIXED = {
    "attention_bias": False,
    "hidden_act": "silu",
    "mlp_bias": False,
    "pretraining_tp": 1,
    "use_sliding_window": False,
}

ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out"}
MLP = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}


def rope_theta(c: Mapping[str, Any]) -> float:
    """The rotary base; transformers 5 keeps it in `rope_parameters`. Scaled forms are refused."""
    scaled = c.get("rope_parameters") or c.get("rope_scaling") or {}
    rule = "rotary positions in config.json must not be scaled"
    require(isinstance(scaled, dict), rule, scaled, UNSUPPORTED)
    kinds = [kind for key, kind in scaled.items() if key != "rope_theta"]
    require(all(kind == "default" for kind in kinds), rule, scaled, UNSUPPORTED)
    return positive(scaled, "rope_theta", default=positive(c, "rope_theta", default=10_000.0))


def network(c: Mapping[str, Any], **changes: Any) -> TransformerConfig:
    """A transformer in the words of transformers' configs."""
    D, H = size(c, "hidden_size"), size(c, "num_attention_heads")
    own_width = c.get("head_dim") is not None
    sizes: dict[str, Any] = {
        "V": size(c, "vocab_size"),
        "D": D,
        "N": size(c, "num_hidden_layers"),
        "H": H,
        "K": size(c, "num_key_value_heads", default=H),
        "head_dim": size(c, "head_dim") if own_width else head_width(D, H),
        "context": size(c, "max_position_embeddings"),
        "eps": positive(c, "rms_norm_eps", default=1e-6),
        "rope_theta": rope_theta(c),
        "tied": flag(c, "tie_word_embeddings", default=False),
    }
    sizes |= {"F": size(c, "intermediate_size")} if "F" not in changes else {}
    return TransformerConfig(**sizes | changes)


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, FIXED)
    net = network(c, causal=True)
    return FAMILY.model(net, **special_tokens(c, net.V))


def describe(
    config: ModelConfig, architecture: str = "LlamaForCausalLM", model_type: str = "llama"
) -> dict[str, Any]:
    """The checkpoint's config from ours, for every family with Llama's words."""
    c = config.network
    assert isinstance(c, TransformerConfig)
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_act": "silu",
        "hidden_size": c.D,
        "num_hidden_layers": c.N,
        "num_attention_heads": c.H,
        "num_key_value_heads": c.K,
        "head_dim": c.head_dim,
        "intermediate_size": c.F,
        "max_position_embeddings": c.context,
        "rope_theta": c.rope_theta,
        "rms_norm_eps": c.eps,
        "vocab_size": c.V,
        "tie_word_embeddings": c.tied,
    } | describe_tokens(config)


def layer(theirs: str, ours: str) -> Rule:
    return Rule(f"model.layers.{{layer}}.{theirs}", f"blocks.{ours}")


def rules(c: ModelConfig) -> list[Rule]:
    """The rule table of Llama and of what took over its names."""
    net = c.network
    assert isinstance(net, TransformerConfig)
    table = [
        Rule("model.embed_tokens.weight", "input.rows"),
        Rule("model.norm.weight", "norm.weight"),
    ]
    if not net.tied:
        table.append(Rule("lm_head.weight", "output.rows"))
    table.append(layer("input_layernorm.weight", "attention_norm.weight"))
    table.append(layer("post_attention_layernorm.weight", "mlp_norm.weight"))
    for theirs, ours in ATTENTION.items():
        table.append(layer(f"self_attn.{theirs}.weight", f"attention.{ours}.kernel"))
        if net.qkv_bias and ours != "out":
            table.append(layer(f"self_attn.{theirs}.bias", f"attention.{ours}.bias"))
    if net.qk_norm:
        table.append(layer("self_attn.q_norm.weight", "attention.query_norm.weight"))
        table.append(layer("self_attn.k_norm.weight", "attention.key_norm.weight"))
    if not net.experts:
        table += [layer(f"mlp.{t}.weight", f"mlp.{o}.kernel") for t, o in MLP.items()]
    return table


FAMILY = Family(
    name="llama",
    architectures=("LlamaForCausalLM",),
    config=config,
    describe=describe,
    rules=rules,
    derived=(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
)
