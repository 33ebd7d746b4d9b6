"""Qwen3, a causal judge: Llama with norms on the queries and keys of every head."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import llama, qwen2
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import expect, special_tokens
from sake_jax.models import ModelConfig


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, qwen2.FIXED | {"attention_bias": False})
    network = llama.network(c, causal=True, qk_norm=True)
    return FAMILY.model(network, **special_tokens(c, network.V))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    return llama.describe(config, "Qwen3ForCausalLM", "qwen3")


FAMILY = Family(
    name="qwen3",
    architectures=("Qwen3ForCausalLM",),
    config=config,
    describe=describe,
    rules=llama.rules,
)
