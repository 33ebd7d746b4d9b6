"""Fast-dLLM v2 (arXiv 2509.26328): Qwen2.5's network, block after block.

Row j predicts token j + 1, as in its ancestor: the first token of a block comes from the last row
of the block before.
"""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import llama, qwen2
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import expect, published_mask, size, special_tokens
from sake_jax.models import ModelConfig

MASK_ID = 151_665
"""Of the published models, whose configs name none."""


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, qwen2.FIXED)
    network = llama.network(c, shifted=True, qkv_bias=True, block_size=size(c, "bd_size"))
    mask_id = published_mask(c, network.V, MASK_ID)
    return FAMILY.model(network, mask_id=mask_id, **special_tokens(c, network.V))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    own = llama.describe(config, "Fast_dLLM_QwenForCausalLM", "Fast_dLLM_Qwen")
    return own | {"bd_size": config.network.block_size}


QWEN = {
    "bd_size": 32,
    "bos_token_id": 151_643,
    "eos_token_id": 151_645,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
}

FAMILY = Family(
    name="fast_dllm",
    architectures=("Fast_dLLM_QwenForCausalLM",),
    config=config,
    describe=describe,
    rules=llama.rules,
    published={
        "fast_dllm_v2_1.5b": QWEN
        | {
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_attention_heads": 12,
            "num_hidden_layers": 28,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
            "vocab_size": 151_936,
        },
        "fast_dllm_v2_7b": QWEN
        | {
            "hidden_size": 3584,
            "intermediate_size": 18_944,
            "num_attention_heads": 28,
            "num_hidden_layers": 28,
            "num_key_value_heads": 4,
            "tie_word_embeddings": False,
            "vocab_size": 152_064,
        },
    },
    sampler="block",
    positions="tokens",
)
