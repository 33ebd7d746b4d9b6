"""Dream 7B: Qwen2's network read both ways. Row j predicts token j + 1, as in its ancestor."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import llama
from sake_jax.conversion.families.family import Family, expect, tokens, value
from sake_jax.conversion.families.qwen import FIXED
from sake_jax.models.config import ModelConfig


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    expect(c, FIXED)
    network = llama.network(c, shifted=True, qkv_bias=True)
    return ModelConfig(
        family="dream",
        network=network,
        mask_id=value(c, "mask_token_id"),
        positions="tokens",
        **tokens(c),
    )


FAMILY = Family("dream", ("DreamModel",), config, llama.rules)
