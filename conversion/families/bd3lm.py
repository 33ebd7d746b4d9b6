"""BD3LM (arXiv 2503.09573): MDLM's DiT block after block. The last token is the mask."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import dit
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import expect, flag, size
from sake_jax.models import DiTConfig, ModelConfig

FIXED = {"adaln": True, "causal": False, "cross_attn": True}


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's, which also says whether the range of noise is stored."""
    expect(c, FIXED)
    limits = flag(c, "var_min", default=True)
    network = dit.network(c, block_size=size(c, "block_size"), stored_limits=limits)
    return FAMILY.model(network, mask_id=network.V - 1)


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    network = config.network
    assert isinstance(network, DiTConfig)
    own = {"block_size": network.block_size, "var_min": network.stored_limits}
    return dit.describe(config, "BD3LM") | own


FAMILY = Family(
    name="bd3lm",
    architectures=("BD3LM",),
    config=config,
    describe=describe,
    rules=dit.rules,
    sampler="block",
    order="random",
    predicts_mask=False,
)
