"""UDLM (arXiv 2412.10193): uniform noise with a DiT. There is no mask token."""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import dit
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import flag, size
from sake_jax.models import ModelConfig


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's, whose `cfg` says that it was trained with labels."""
    classes = size(c, "cfg_num_classes") if flag(c, "cfg", default=False) else 0
    return FAMILY.model(dit.network(c, classes=classes))


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    classes = config.network.classes
    return dit.describe(config, "UDLM") | {"cfg": classes > 0, "cfg_num_classes": classes}


FAMILY = Family(
    name="udlm",
    architectures=("UDLM",),
    config=config,
    describe=describe,
    rules=dit.rules,
    sampler="ancestral",
)
