"""Qwen2 and Qwen3, causal judges: Llama with biases on q, k, v, or with norms on heads."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import llama
from sake_jax.conversion.families.family import Family, expect, tokens
from sake_jax.models.config import ModelConfig

FIXED = {"hidden_act": "silu", "use_sliding_window": False, "use_mrope": False}


def qwen2(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, FIXED)
    network = llama.network(c, causal=True, qkv_bias=True)
    return ModelConfig(family="qwen2", network=network, **tokens(c))


def qwen3(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, FIXED | {"attention_bias": False})
    network = llama.network(c, causal=True, qk_norm=True)
    return ModelConfig(family="qwen3", network=network, **tokens(c))


FAMILIES = (
    Family("qwen2", ("Qwen2ForCausalLM",), qwen2, llama.rules),
    Family("qwen3", ("Qwen3ForCausalLM",), qwen3, llama.rules),
)
