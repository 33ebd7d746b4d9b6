"""iLLaDA 8B: LLaDA's successor with Llama's names, grouped queries and tied tables."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import llama
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import expect, mask_token, special_tokens
from sake_jax.models import ModelConfig

MASK_ID = 5
"""What the original sampler uses, for configs that do not name one."""


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, llama.FIXED | {"layer_norm_eps": None})
    network = llama.network(c)
    mask_id = mask_token(c, network.V, default=MASK_ID)
    return FAMILY.model(network, mask_id=mask_id, **special_tokens(c, network.V))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    return llama.describe(config, "ILLaDAForCausalLM", "illada")


FAMILY = Family(
    name="illada",
    architectures=("ILLaDAForCausalLM",),
    config=config,
    describe=describe,
    rules=llama.rules,
)
