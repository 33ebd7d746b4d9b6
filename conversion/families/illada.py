"""iLLaDA 8B: LLaDA's successor with Llama's names, grouped queries and tied tables."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import llama
from sake_jax.conversion.families.family import Family, expect, tokens
from sake_jax.models.config import ModelConfig

MASK_ID = 5
"""What the original sampler uses, for configs that do not name one."""


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, llama.FIXED | {"layer_norm_eps": None})
    mask = c.get("mask_token_id", MASK_ID)
    return ModelConfig(family="illada", network=llama.network(c), mask_id=mask, **tokens(c))


FAMILY = Family("illada", ("ILLaDAForCausalLM",), config, llama.rules)
