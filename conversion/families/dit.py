"""What MDLM, BD3LM, UDLM, SEDD and RADD share: one diffusion transformer (DiT), one rule table."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families.reading import choice, flag, part, positive, size
from sake_jax.conversion.rules import Rule
from sake_jax.models import DiTConfig, ModelConfig
from sake_jax.noise_levels import Geometric, LogLinear, NoiseLevels

NOISES = ("loglinear", "geometric")

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


def nested_network(c: Mapping[str, Any], vocabulary: int, **changes: Any) -> DiTConfig:
    """The DiT, in the words of SEDD's and RADD's configs: `model` and `noise` are parts of them."""
    model, D = part(c, "model"), size(part(c, "model"), "hidden_size")
    sizes: dict[str, Any] = {
        "V": vocabulary,
        "D": D,
        "N": size(model, "n_blocks"),
        "H": size(model, "n_heads"),
        "F": 4 * D,
        "context": size(model, "length"),
        "noise": noise_levels(part(c, "noise")),
    }
    return DiTConfig(**sizes | changes)


def describe_nested(c: DiTConfig) -> dict[str, Any]:
    """The inverse of `nested_network`, as far as SEDD and RADD share it."""
    model = {"hidden_size": c.D, "n_blocks": c.N, "n_heads": c.H, "length": c.context}
    return {"model": model, "noise": describe_noise(c.noise)}


def noise_levels(described: Mapping[str, Any]) -> NoiseLevels:
    """The schedule of the noise, as SEDD and RADD name it."""
    if choice(described, "type", NOISES) == "geometric":
        return Geometric(positive(described, "sigma_min"), positive(described, "sigma_max"))
    return LogLinear(positive(described, "eps", default=LogLinear.eps))


def describe_noise(noise: NoiseLevels) -> dict[str, Any]:
    """The inverse of `noise_levels`."""
    if isinstance(noise, Geometric):
        return {"type": "geometric", "sigma_min": noise.low, "sigma_max": noise.high}
    return {"type": "loglinear", "eps": noise.eps}


CONDITION = {
    "sigma_map.mlp.0": "noise.first",
    "sigma_map.mlp.2": "noise.second",
    "output_layer.adaLN_modulation": "modulation",
    "blocks.{layer}.adaLN_modulation": "blocks.modulation",
}
"""Where the noise level comes in."""
MLP = {"blocks.{layer}.mlp.0": "blocks.mlp.up", "blocks.{layer}.mlp.2": "blocks.mlp.down"}
NORMS = {
    "output_layer.norm_final": "norm",
    "blocks.{layer}.norm1": "blocks.attention_norm",
    "blocks.{layer}.norm2": "blocks.mlp_norm",
}


def rules(c: ModelConfig) -> list[Rule]:
    """The rule table of MDLM, BD3LM and UDLM."""
    return backbone_rules(c, "backbone.")


def backbone_rules(c: ModelConfig, prefix: str = "") -> list[Rule]:
    """The rule table; in SEDD and RADD the backbone's names have no prefix."""
    net = c.network
    assert isinstance(net, DiTConfig)
    table = [
        Rule(f"{prefix}vocab_embed.embedding", "input.rows"),
        Rule(f"{prefix}rotary_emb.inv_freq", "frequencies"),
        Rule(f"{prefix}output_layer.linear.weight", "output.rows"),
        Rule(f"{prefix}output_layer.linear.bias", "output_bias"),
        Rule(f"{prefix}blocks.{{layer}}.attn_qkv.weight", "blocks.attention.qkv.kernel"),
        Rule(f"{prefix}blocks.{{layer}}.attn_out.weight", "blocks.attention.out.kernel"),
    ]
    for theirs, ours in (MLP | (CONDITION if net.cond_dim else {})).items():
        table.append(Rule(f"{prefix}{theirs}.weight", f"{ours}.kernel"))
        table.append(Rule(f"{prefix}{theirs}.bias", f"{ours}.bias"))
    for theirs, ours in NORMS.items():
        table.append(Rule(f"{prefix}{theirs}.weight", f"{ours}.weight"))
        if not net.cond_dim:
            table.append(Rule(f"{prefix}{theirs}.bias", f"{ours}.bias"))
    if net.classes:
        table.append(Rule(f"{prefix}cond_map.embedding_table.weight", "labels.rows"))
    if net.stored_limits:
        table.append(Rule("sampling_eps_min", "lowest_noise"))
        table.append(Rule("sampling_eps_max", "highest_noise"))
    return table
