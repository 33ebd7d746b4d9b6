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
NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}
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


def rules(c: ModelConfig) -> list[Rule]:
    """The rule table of Llama and of what took over its names."""
    net = c.network
    assert isinstance(net, TransformerConfig)
    return outside(net) + layers("blocks", [*every_layer(net), *mlp("mlp", "mlp")])


def outside(net: TransformerConfig, embedding: str = "model.embed_tokens.weight") -> list[Rule]:
    """Rules of what is no part of a layer."""
    table = [Rule(embedding, "input.rows"), Rule("model.norm.weight", "norm.weight")]
    return table if net.tied else [*table, Rule("lm_head.weight", "output.rows")]


def every_layer(net: TransformerConfig) -> list[Rule]:
    """Rules of one layer, but for what follows attention."""
    table = [Rule(f"{theirs}.weight", f"{ours}.weight") for theirs, ours in NORMS.items()]
    for theirs, ours in ATTENTION.items():
        table.append(Rule(f"self_attn.{theirs}.weight", f"attention.{ours}.kernel"))
        if net.qkv_bias and ours != "out":
            table.append(Rule(f"self_attn.{theirs}.bias", f"attention.{ours}.bias"))
    if net.qk_norm:
        table.append(Rule("self_attn.q_norm.weight", "attention.query_norm.weight"))
        table.append(Rule("self_attn.k_norm.weight", "attention.key_norm.weight"))
    return table


def mlp(theirs: str, ours: str) -> list[Rule]:
    """Rules of a gated MLP under these names."""
    return [Rule(f"{theirs}.{t}.weight", f"{ours}.{o}.kernel") for t, o in MLP.items()]


def experts() -> list[Rule]:
    """Rules of a router and its experts, in the words of all who have them."""
    return [
        Rule("mlp.gate.weight", "mlp.router.kernel"),
        *(
            Rule(f"mlp.experts.{{expert}}.{t}.weight", f"mlp.{o}.kernel", True)
            for t, o in MLP.items()
        ),
    ]


def layers(stack: str, rules: list[Rule], first: int = 0) -> list[Rule]:
    """Rules of one layer for all layers of a stack, whose first has this number."""
    return [
        Rule(f"model.layers.{{layer}}.{r.source}", f"{stack}.{r.target}", r.transposed, first)
        for r in rules
    ]


FAMILY = Family(
    name="llama",
    architectures=("LlamaForCausalLM",),
    config=config,
    describe=describe,
    rules=rules,
    derived=(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
)
