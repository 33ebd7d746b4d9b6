"""One module per family: how its config.json reads, and its rule table."""

from typing import Any

from sake_jax.checks import require
from sake_jax.conversion.families import dit, dream, gpt2, illada, llada, llada_moe, llama, qwen
from sake_jax.conversion.families.family import Family as Family

FAMILIES: tuple[Family, ...] = (
    llada.FAMILY,
    illada.FAMILY,
    llada_moe.FAMILY,
    dream.FAMILY,
    *dit.FAMILIES,
    llama.FAMILY,
    *qwen.FAMILIES,
    gpt2.FAMILY,
)
"""Every family the library knows."""


def recognise(config: dict[str, Any]) -> Family:
    """The family of a checkpoint, from the `architectures` of its config.json."""
    named = config.get("architectures") or []
    for family in FAMILIES:
        if any(name in family.architectures for name in named):
            return family
    known = ", ".join(sorted(name for family in FAMILIES for name in family.architectures))
    rule = f"config.json must name one of the architectures {known}"
    raise ValueError(f"{rule}, got {named or config.get('model_type')!r}; check the folder.")


def family(name: str) -> Family:
    """A family by its name."""
    found = {family.name: family for family in FAMILIES}
    rule = f"family must be one of {', '.join(found)}"
    require(name in found, rule, name, "pick one of these")
    return found[name]
