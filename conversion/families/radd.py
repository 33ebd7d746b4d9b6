"""RADD (arXiv 2406.03736): absorbing diffusion with a DiT that never sees the time.

It predicts clean tokens at the masks, and the output for the mask token, the last one, has no
meaning. Its config.json is the training run's, in parts.
"""

from collections.abc import Mapping
from typing import Any

from sake_jax.conversion.families import dit
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import size
from sake_jax.models import DiTConfig, ModelConfig


def recognises(c: Mapping[str, Any]) -> bool:
    """A config.json of RADD has a DiT "without time"."""
    model = c.get("model")
    return isinstance(model, Mapping) and model.get("type") == "ddit_wot"


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's, whose `cond_dim` nothing uses."""
    network = dit.nested_network(c, size(c, "tokens") + 1, cond_dim=0)
    return FAMILY.model(network, mask_id=network.V - 1)


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    network = config.network
    assert isinstance(network, DiTConfig)
    described = dit.describe_nested(network)
    # The original builds nothing with cond_dim, but wants it there.
    described["model"] |= {"type": "ddit_wot", "cond_dim": 128}
    return described | {"tokens": network.V - 1}


FAMILY = Family(
    name="radd",
    architectures=("RADD",),
    recognises=recognises,
    config=config,
    describe=describe,
    rules=dit.backbone_rules,
    sampler="ancestral",
    predicts_mask=False,
)
