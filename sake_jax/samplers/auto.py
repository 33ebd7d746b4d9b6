"""The preset that a model's family is usually drawn with."""

import inspect
from typing import Any

from sake_jax.checks import one_of, require
from sake_jax.models import LanguageModel
from sake_jax.samplers.presets import ancestral, block, masked
from sake_jax.samplers.revising import revising
from sake_jax.samplers.sampler import Sampler

PRESETS = {"masked": masked, "ancestral": ancestral, "block": block, "revising": revising}
KINDS = ("auto", *PRESETS)


def sampler_for(lm: LanguageModel, *, length: int, kind: str = "auto", **options: Any) -> Sampler:
    """The sampler that a model's family is usually drawn with: `masked`, `ancestral`, `block` or
    `revising`.

    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> sampler_for(lm, length=64).plan == sj.masked(lm, length=64).plan
    True

    Args:
      lm: the model.
      length: tokens to write.
      kind: a preset's name; "auto" for the one of the model's family.
      **options: of that preset, such as steps, guidance and draw. None is the preset's default.
    """
    kind = lm.config.sampler if one_of("sampler", kind, KINDS) == "auto" else kind
    given = {name: value for name, value in options.items() if value is not None}
    for name in given.keys() - _options(kind):
        known = [each for each in PRESETS if name in _options(each)]
        require(known, f"{name} must be an option of a sampler", given[name], "check its name")
        words = " or ".join([*filter(None, [", ".join(known[:-1])]), known[-1]])
        rule, remedy = f"{name} is for {words} decoding", "leave it out"
        require(False, rule, given[name], f"{remedy}: this is {kind!r}")
    return PRESETS[kind](lm, length=length, **given)


def _options(kind: str) -> set[str]:
    return set(inspect.signature(PRESETS[kind]).parameters)
