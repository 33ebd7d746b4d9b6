"""Qwen2, a causal judge: Llama with biases on queries, keys and values."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import llama
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import expect, special_tokens
from sake_jax.models import ModelConfig

FIXED = {"hidden_act": "silu", "use_sliding_window": False, "use_mrope": False}


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, FIXED)
    network = llama.network(c, causal=True, qkv_bias=True)
    return FAMILY.model(network, **special_tokens(c, network.V))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    return llama.describe(config, "Qwen2ForCausalLM", "qwen2")


FAMILY = Family(
    name="qwen2",
    architectures=("Qwen2ForCausalLM",),
    config=config,
    describe=describe,
    rules=llama.rules,
)
