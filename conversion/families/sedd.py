"""SEDD (arXiv 2310.16834): a DiT that predicts concrete scores, of absorbing or uniform noise.

Its config.json is the training run's, in parts. With the graph "absorb" the mask is one token more
than `tokens`, the last; with "uniform" there is none.
"""

from collections.abc import Mapping
from typing import Any

from sake_jax.checks import require
from sake_jax.conversion.families import dit
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import choice, flag, part, size
from sake_jax.models import DiTConfig, ModelConfig

GRAPHS = ("absorb", "uniform")


def recognises(c: Mapping[str, Any]) -> bool:
    """A config.json of SEDD has a graph, and a DiT with time."""
    model = c.get("model")
    return "graph" in c and isinstance(model, Mapping) and model.get("type") == "ddit"


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    graph, model = choice(part(c, "graph"), "type", GRAPHS), part(c, "model")
    absorbs, scaled = graph == "absorb", flag(model, "scale_by_sigma", default=False)
    rule, remedy = "scale_by_sigma is for the graph 'absorb'", "no such network can be run"
    require(absorbs or not scaled, rule, graph, remedy)
    network = dit.nested_network(
        c,
        size(c, "tokens") + absorbs,
        cond_dim=size(model, "cond_dim"),
        time_conditioning=True,
        scores=True,
        scale_by_sigma=scaled,
    )
    return FAMILY.model(network, mask_id=network.V - 1 if absorbs else None)


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    network, absorbs = config.network, config.mask_id is not None
    assert isinstance(network, DiTConfig)
    described = dit.describe_nested(network)
    own = {"type": "ddit", "cond_dim": network.cond_dim, "scale_by_sigma": network.scale_by_sigma}
    described["model"] |= own
    return described | {
        "graph": {"type": "absorb" if absorbs else "uniform"},
        "tokens": network.V - absorbs,
    }


def openwebtext(**sizes: int) -> dict[str, Any]:
    """config.json of the models trained on OpenWebText, as far as it decides something."""
    model = {"type": "ddit", "cond_dim": 128, "length": 1024, "scale_by_sigma": True} | sizes
    return {
        "graph": {"type": "absorb"},
        "model": model,
        "noise": {"type": "loglinear"},
        "tokens": 50_257,
    }


FAMILY = Family(
    name="sedd",
    architectures=("SEDD",),
    recognises=recognises,
    config=config,
    describe=describe,
    rules=dit.backbone_rules,
    published={
        "sedd-small": openwebtext(hidden_size=768, n_blocks=12, n_heads=12),
        "sedd-medium": openwebtext(hidden_size=1024, n_blocks=24, n_heads=16),
    },
    sampler="ancestral",
    predicts_mask=False,
)
