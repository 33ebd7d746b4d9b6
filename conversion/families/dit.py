"""What MDLM, BD3LM and UDLM share: one diffusion transformer (DiT), one rule table."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families.reading import flag, size
from sake_jax.conversion.rules import Rule
from sake_jax.models import DiTConfig, ModelConfig

OPENWEBTEXT = {
    "cond_dim": 128,
    "hidden_dim": 768,
    "model_length": 1024,
    "n_blocks": 12,
    "n_heads": 12,
    "time_conditioning": False,
    "vocab_size": 50_258,
}
"""The sizes in which the authors published models trained on OpenWebText."""


def network(c: Mapping[str, Any], **changes: Any) -> DiTConfig:
    """The DiT, in the words of its authors' configs."""
    D = size(c, "hidden_dim")
    sizes: dict[str, Any] = {
        "V": size(c, "vocab_size"),
        "D": D,
        "N": size(c, "n_blocks"),
        "H": size(c, "n_heads"),
        "F": 4 * D,
        "context": size(c, "model_length"),
        "cond_dim": size(c, "cond_dim"),
        "time_conditioning": flag(c, "time_conditioning"),
    }
    return DiTConfig(**sizes | changes)


def describe(config: ModelConfig, architecture: str) -> dict[str, Any]:
    """The inverse of `network`: config.json in its authors' words."""
    c = config.network
    assert isinstance(c, DiTConfig)
    return {
        "architectures": [architecture],
        "model_type": config.family,
        "hidden_dim": c.D,
        "n_blocks": c.N,
        "n_heads": c.H,
        "cond_dim": c.cond_dim,
        "model_length": c.context,
        "time_conditioning": c.time_conditioning,
        "vocab_size": c.V,
    }


LINEAR = {
    "backbone.sigma_map.mlp.0": "noise.first",
    "backbone.sigma_map.mlp.2": "noise.second",
    "backbone.output_layer.adaLN_modulation": "modulation",
    "backbone.blocks.{layer}.adaLN_modulation": "blocks.modulation",
    "backbone.blocks.{layer}.mlp.0": "blocks.mlp.up",
    "backbone.blocks.{layer}.mlp.2": "blocks.mlp.down",
}


def rules(c: ModelConfig) -> list[Rule]:
    """The rule table."""
    net = c.network
    assert isinstance(net, DiTConfig)
    block = "backbone.blocks.{layer}"
    table = [
        Rule("backbone.vocab_embed.embedding", "input.rows"),
        Rule("backbone.rotary_emb.inv_freq", "frequencies"),
        Rule("backbone.output_layer.norm_final.weight", "norm.weight"),
        Rule("backbone.output_layer.linear.weight", "output.rows"),
        Rule("backbone.output_layer.linear.bias", "output_bias"),
        Rule(f"{block}.norm1.weight", "blocks.attention_norm.weight"),
        Rule(f"{block}.norm2.weight", "blocks.mlp_norm.weight"),
        Rule(f"{block}.attn_qkv.weight", "blocks.attention.qkv.kernel"),
        Rule(f"{block}.attn_out.weight", "blocks.attention.out.kernel"),
    ]
    for theirs, ours in LINEAR.items():
        table.append(Rule(f"{theirs}.weight", f"{ours}.kernel"))
        table.append(Rule(f"{theirs}.bias", f"{ours}.bias"))
    if net.classes:
        table.append(Rule("backbone.cond_map.embedding_table.weight", "labels.rows"))
    if net.stored_limits:
        table.append(Rule("sampling_eps_min", "lowest_noise"))
        table.append(Rule("sampling_eps_max", "highest_noise"))
    return table
