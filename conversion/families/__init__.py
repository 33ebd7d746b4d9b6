"""One module per family. A new one is a file here and a line in `FAMILIES`."""

from collections.abc import Mapping
from typing import Any

from sake_jax.checks import one_of, require
from sake_jax.conversion.families import (
    bd3lm,
    diffusion_gemma,
    dream,
    fast_dllm,
    gpt2,
    illada,
    llada,
    llada2,
    llada_moe,
    llama,
    mdlm,
    qwen2,
    qwen3,
    radd,
    sdar,
    sedd,
    udlm,
)
from sake_jax.conversion.families.family import Family as Family
from sake_jax.models import ModelConfig

FAMILIES: tuple[Family, ...] = (
    llada.FAMILY,
    illada.FAMILY,
    llada_moe.FAMILY,
    dream.FAMILY,
    mdlm.FAMILY,
    bd3lm.FAMILY,
    udlm.FAMILY,
    sdar.FAMILY,
    llada2.FAMILY,
    fast_dllm.FAMILY,
    sedd.FAMILY,
    radd.FAMILY,
    diffusion_gemma.FAMILY,
    llama.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    gpt2.FAMILY,
)
"""Every family the library knows."""


def recognise(config: Mapping[str, Any]) -> Family:
    """The family of a checkpoint, from the `architectures` of its config.json, or from what else
    is there where none are named."""
    named = config.get("architectures")
    listed = named if isinstance(named, list) else []
    for family in FAMILIES:
        if any(name in family.architectures for name in listed):
            return family
        if not named and family.recognises(config):
            return family
    known = ", ".join(sorted(name for family in FAMILIES for name in family.architectures))
    rule = f"`architectures` in config.json must list one of {known}"
    require(False, rule, named or config.get("model_type"), "check the folder")
    raise AssertionError


def family(name: str) -> Family:
    """A family by its name.

    >>> from sake_jax.conversion import family
    >>> family("bd3lm").sampler
    'block'
    """
    by_name = {family.name: family for family in FAMILIES}
    return by_name[one_of("family", name, by_name)]


def published() -> dict[str, ModelConfig]:
    """Configs of models on the hub, by the last part of their names in lower case."""
    configs: dict[str, ModelConfig] = {}
    for family in FAMILIES:
        both = sorted(configs.keys() & family.published.keys())
        rule = "a published model must belong to one family"
        remedy = f"leave it out of the `published` of {family.name!r}"
        require(not both, rule, [(name, configs[name].family) for name in both], remedy)
        configs |= {name: family.config(given) for name, given in family.published.items()}
    return configs
