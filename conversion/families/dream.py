"""Dream 7B: Qwen2's network read both ways. Row j predicts token j + 1, as in its ancestor."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import llama, qwen2
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import expect, mask_token, special_tokens
from sake_jax.models import ModelConfig


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, qwen2.FIXED)
    network = llama.network(c, shifted=True, qkv_bias=True)
    return FAMILY.model(network, mask_id=mask_token(c, network.V), **special_tokens(c, network.V))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    return llama.describe(config, "DreamModel", "Dream")


DREAM_7B = {
    "bos_token_id": 151_643,
    "eos_token_id": 151_643,
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "mask_token_id": 151_666,
    "max_position_embeddings": 131_072,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "pad_token_id": 151_643,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
    "vocab_size": 152_064,
}

FAMILY = Family(
    name="dream",
    architectures=("DreamModel",),
    config=config,
    describe=describe,
    rules=llama.rules,
    published=dict.fromkeys(("dream-7b", "dream-v0-base-7b", "dream-v0-instruct-7b"), DREAM_7B),
    positions="tokens",
    # Its checkpoints name DreamTokenizer, a copy of Qwen2's that comes as code beside them.
    tokenizer_class="Qwen2Tokenizer",
)
