"""MDLM, BD3LM and UDLM: one DiT, one rule table."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families.family import Family, expect, value
from sake_jax.conversion.rules import Rule
from sake_jax.models.config import DiTConfig, ModelConfig

FIXED = {"adaln": True, "causal": False, "cross_attn": True}


def network(c: Mapping[str, Any], **changes: Any) -> DiTConfig:
    """The DiT, in the words of its authors' configs."""
    D = value(c, "hidden_dim")
    sizes: dict[str, Any] = {
        "V": value(c, "vocab_size"),
        "D": D,
        "N": value(c, "n_blocks"),
        "H": value(c, "n_heads"),
        "F": 4 * D,
        "context": value(c, "model_length"),
        "cond_dim": value(c, "cond_dim"),
        "time_conditioning": value(c, "time_conditioning"),
    }
    return DiTConfig(**sizes | changes)


def mdlm(c: Mapping[str, Any]) -> ModelConfig:
    """The last token of the vocabulary is the mask."""
    net = network(c)
    return ModelConfig(family="mdlm", network=net, mask_id=net.V - 1)


def bd3lm(c: Mapping[str, Any]) -> ModelConfig:
    """Block diffusion; the checkpoint also keeps the range of its noise."""
    expect(c, FIXED)
    net = network(c, block_size=value(c, "block_size"), stored_limits=c.get("var_min", True))
    return ModelConfig(family="bd3lm", network=net, mask_id=net.V - 1)


def udlm(c: Mapping[str, Any]) -> ModelConfig:
    """Uniform noise: there is no mask token. `cfg` says that it was trained with labels."""
    net = network(c, classes=c.get("cfg_num_classes", 0) if c.get("cfg") else 0)
    return ModelConfig(family="udlm", network=net)


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


FAMILIES = (
    Family("mdlm", ("MDLM",), mdlm, rules),
    Family("bd3lm", ("BD3LM",), bd3lm, rules),
    Family("udlm", ("UDLM",), udlm, rules),
)
