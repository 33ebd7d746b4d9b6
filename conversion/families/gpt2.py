"""GPT-2, the classic causal judge: learned positions, biases everywhere, kernels transposed."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import (
    describe_tokens,
    expect,
    head_width,
    positive,
    size,
    special_tokens,
)
from sake_jax.conversion.rules import Rule
from sake_jax.models import ModelConfig, TransformerConfig

FIXED = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "tie_word_embeddings": True,
}


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, FIXED)
    D, H = size(c, "n_embd"), size(c, "n_head")
    network = TransformerConfig(
        V=size(c, "vocab_size"),
        D=D,
        N=size(c, "n_layer"),
        H=H,
        K=H,
        head_dim=head_width(D, H),
        F=size(c, "n_inner", default=4 * D),
        context=size(c, "n_positions"),
        causal=True,
        norm="layer",
        eps=positive(c, "layer_norm_epsilon", default=1e-5),
        mlp="gelu",
        rope_theta=None,
        qkv_bias=True,
        bias=True,
        fused_qkv=True,
        tied=True,
    )
    return FAMILY.model(network, **special_tokens(c, network.V))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    c = config.network
    assert isinstance(c, TransformerConfig)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "n_embd": c.D,
        "n_layer": c.N,
        "n_head": c.H,
        "n_inner": c.F,
        "n_positions": c.context,
        "layer_norm_epsilon": c.eps,
        "vocab_size": c.V,
    } | describe_tokens(config)


NORMS = {"ln_1": "attention_norm", "ln_2": "mlp_norm"}
KERNELS = {
    "attn.c_attn": "attention.qkv",
    "attn.c_proj": "attention.out",
    "mlp.c_fc": "mlp.up",
    "mlp.c_proj": "mlp.down",
}


def rules(c: ModelConfig) -> list[Rule]:
    """The rule table. GPT-2's `Conv1D` stores (inputs, outputs)."""
    table = [
        Rule("wte.weight", "input.rows"),
        Rule("wpe.weight", "places.rows"),
        Rule("ln_f.weight", "norm.weight"),
        Rule("ln_f.bias", "norm.bias"),
    ]
    for theirs, ours in NORMS.items():
        table.append(Rule(f"h.{{layer}}.{theirs}.weight", f"blocks.{ours}.weight"))
        table.append(Rule(f"h.{{layer}}.{theirs}.bias", f"blocks.{ours}.bias"))
    for theirs, ours in KERNELS.items():
        table.append(Rule(f"h.{{layer}}.{theirs}.weight", f"blocks.{ours}.kernel", True))
        table.append(Rule(f"h.{{layer}}.{theirs}.bias", f"blocks.{ours}.bias"))
    return table


FAMILY = Family(
    name="gpt2",
    architectures=("GPT2LMHeadModel",),
    config=config,
    describe=describe,
    rules=rules,
    prefixes=("", "transformer."),
    embedding="wte.weight",
    derived=(r"h\.\d+\.attn\.(masked_)?bias",),  # the causal triangle
    positions="tokens",
)
