"""SDAR and TraDo (arXiv 2510.06303): Qwen3's network, block after block. Rows are not shifted.

The variants with experts are Qwen3-MoE's networks, by their config.
"""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import llada_moe, llama, qwen2
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import (
    expect,
    flag,
    published_mask,
    size,
    special_tokens,
)
from sake_jax.conversion.rules import Rule
from sake_jax.models import ModelConfig, TransformerConfig

MASK_ID = 151_669
"""Of the published models, for configs that do not name one."""
BLOCK = 4
"""The block of the published models, for configs that do not say."""
FIXED = qwen2.FIXED | {"attention_bias": False, "decoder_sparse_step": 1, "mlp_only_layers": ([],)}


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, FIXED)
    more: dict[str, Any] = {}
    if "num_experts" in c:
        more = {
            "F": size(c, "moe_intermediate_size"),
            "experts": size(c, "num_experts"),
            "experts_per_token": size(c, "num_experts_per_tok"),
            "normalize_experts": flag(c, "norm_topk_prob", default=False),
        }
    block = size(c, "block_size", default=BLOCK)
    network = llama.network(c, qk_norm=True, block_size=block, **more)
    mask_id = published_mask(c, network.V, MASK_ID)
    return FAMILY.model(network, mask_id=mask_id, **special_tokens(c, network.V))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    c = config.network
    assert isinstance(c, TransformerConfig)
    if not c.experts:
        own = llama.describe(config, "SDARForCausalLM", "sdar")
    else:
        own = llama.describe(config, "SDARMoeForCausalLM", "sdar_moe") | {
            "moe_intermediate_size": c.F,
            "num_experts": c.experts,
            "num_experts_per_tok": c.experts_per_token,
            "norm_topk_prob": c.normalize_experts,
        }
    return own | {"block_size": c.block_size}


def rules(c: ModelConfig) -> list[Rule]:
    """Qwen3's table, or Qwen3-MoE's."""
    assert isinstance(c.network, TransformerConfig)
    return llada_moe.rules(c) if c.network.experts else llama.rules(c)


def _qwen3(hidden: int, layers: int, heads: int, keys: int, mlp: int, tied: bool) -> dict[str, Any]:
    """What the published sizes do not share, and what they do."""
    return {
        "block_size": BLOCK,
        "eos_token_id": 151_645,
        "head_dim": 128,
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "mask_token_id": MASK_ID,
        "max_position_embeddings": 32_768,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": keys,
        "pad_token_id": 151_643,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": tied,
        "vocab_size": 151_936,
    }


EXPERTS = {
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_experts": 128,
    "num_experts_per_tok": 8,
}
SIZES = {
    "1.7b": _qwen3(2048, 28, 16, 8, 6144, tied=True),
    "4b": _qwen3(2560, 36, 32, 8, 9728, tied=True),
    "8b": _qwen3(4096, 36, 32, 8, 12_288, tied=False),
    "30b-a3b": _qwen3(2048, 48, 32, 4, 6144, tied=False) | EXPERTS,
}
KINDS: dict[str, dict[str, Any]] = {
    "": {},
    "-chat": {},
    "-sci": {},
    "-chat-b32": {"block_size": 32},
}

FAMILY = Family(
    name="sdar",
    architectures=("SDARForCausalLM", "SDARMoeForCausalLM"),
    config=config,
    describe=describe,
    rules=rules,
    published={
        f"sdar-{size}{kind}": described | changes
        for size, described in SIZES.items()
        for kind, changes in KINDS.items()
    }
    | {
        "trado-4b-instruct": SIZES["4b"],
        "trado-8b-instruct": SIZES["8b"],
        "trado-8b-thinking": SIZES["8b"],
    },
    sampler="block",
    positions="tokens",
)
