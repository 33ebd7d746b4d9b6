"""MDLM (arXiv 2406.07524): masked diffusion with a DiT. The last token is the mask."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import dit
from sake_jax.conversion.families.family import Family
from sake_jax.models import ModelConfig


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    network = dit.network(c)
    return FAMILY.model(network, mask_id=network.V - 1)


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    return dit.describe(config, "MDLM")


FAMILY = Family(
    name="mdlm",
    architectures=("MDLM",),
    config=config,
    describe=describe,
    rules=dit.rules,
    published={"mdlm-owt": dit.OPENWEBTEXT},
    sampler="ancestral",
    predicts_mask=False,
)
