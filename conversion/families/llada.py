"""LLaDA 8B Base, Instruct and 1.5: a bidirectional Llama with names of its own."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import (
    describe_tokens,
    expect,
    flag,
    head_width,
    mask_token,
    positive,
    size,
    special_tokens,
)
from sake_jax.conversion.rules import Rule
from sake_jax.models import ModelConfig, TransformerConfig

MASK_ID = 126336
"""LLaDA-8B's, for configs that do not name one."""

FIXED = {
    "activation_type": "silu",
    "alibi": False,
    "attention_layer_norm": False,
    "bias_for_layer_norm": (False, None),
    "block_group_size": 1,
    "block_type": "llama",
    "include_bias": False,
    "include_qkv_bias": (False, None),
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "multi_query_attention": (False, None),
    "rope": True,
    "scale_logits": False,
}


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, FIXED)
    D, H = size(c, "d_model"), size(c, "n_heads")
    ratio = 0 if c.get("mlp_hidden_size") else size(c, "mlp_ratio", default=4)
    network = TransformerConfig(
        V=size(c, "embedding_size", "vocab_size"),
        D=D,
        N=size(c, "n_layers"),
        H=H,
        K=size(c, "n_kv_heads", default=H),
        head_dim=head_width(D, H),
        F=size(c, "mlp_hidden_size", default=ratio * D),
        context=size(c, "max_sequence_length"),
        eps=positive(c, "rms_norm_eps", default=1e-5),
        rope_theta=positive(c, "rope_theta", default=10_000.0),
        tied=flag(c, "weight_tying", default=False),
    )
    mask_id = mask_token(c, network.V, default=MASK_ID)
    return FAMILY.model(network, mask_id=mask_id, **special_tokens(c, network.V))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    c = config.network
    assert isinstance(c, TransformerConfig)
    return {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "activation_type": "silu",
        "block_type": "llama",
        "layer_norm_type": "rms",
        "d_model": c.D,
        "n_layers": c.N,
        "n_heads": c.H,
        "n_kv_heads": c.K,
        "mlp_hidden_size": c.F,
        "max_sequence_length": c.context,
        "rope": True,
        "rope_theta": c.rope_theta,
        "rms_norm_eps": c.eps,
        "vocab_size": c.V,
        "embedding_size": c.V,
        "weight_tying": c.tied,
    } | describe_tokens(config)


BLOCK = {
    "attn_norm.weight": "attention_norm.weight",
    "q_proj.weight": "attention.query.kernel",
    "k_proj.weight": "attention.key.kernel",
    "v_proj.weight": "attention.value.kernel",
    "attn_out.weight": "attention.out.kernel",
    "ff_norm.weight": "mlp_norm.weight",
    "ff_proj.weight": "mlp.gate.kernel",
    "up_proj.weight": "mlp.up.kernel",
    "ff_out.weight": "mlp.down.kernel",
}


def rules(c: ModelConfig) -> list[Rule]:
    """The rule table. `ff_out` is the MLP's last matrix in a block and the head outside."""
    table = [Rule("wte.weight", "input.rows"), Rule("ln_f.weight", "norm.weight")]
    if not c.network.tied:
        table.append(Rule("ff_out.weight", "output.rows"))
    table += [
        Rule(f"blocks.{{layer}}.{theirs}", f"blocks.{ours}") for theirs, ours in BLOCK.items()
    ]
    return table


LLADA_8B = {
    "d_model": 4096,
    "embedding_size": 126_464,
    "eos_token_id": 126_081,
    "mask_token_id": MASK_ID,
    "max_sequence_length": 4096,
    "mlp_hidden_size": 12_288,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "pad_token_id": 126_081,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5e5,
}

FAMILY = Family(
    name="llada",
    architectures=("LLaDAModelLM",),
    config=config,
    describe=describe,
    rules=rules,
    prefixes=("model.transformer.",),
    embedding="wte.weight",
    head="ff_out.weight",
    published=dict.fromkeys(
        ("llada-8b", "llada-8b-base", "llada-8b-instruct", "llada-1.5"), LLADA_8B
    ),
)
