"""From the command line's words to a sampler."""

import dataclasses
from collections.abc import Callable
from typing import Any

import sake_jax as sj
from sake_jax.checks import one_of, require

GUIDANCES = ("none", "sake", "spread", "cfg")
SAMPLERS = ("auto", "masked", "ancestral", "block")
USUAL = {"mdlm": "ancestral", "udlm": "ancestral", "bd3lm": "block"}
"""What a family is sampled with, if not "masked"."""
BLOCK = 32
"""Columns of a block for masked decoding, where they divide the length."""


@dataclasses.dataclass(frozen=True)
class Request:
    """How to sample."""

    guidance: str
    """Names of `GUIDANCES`, joined by "+"."""
    strength: float
    temperature: float
    top_p: float
    length: int
    steps: int | None
    block: int | None
    sampler: str
    cache: str

    def __post_init__(self) -> None:
        for name in self.guidance.split("+"):
            one_of("guidance", name, GUIDANCES)
        one_of("sampler", self.sampler, SAMPLERS)

    @property
    def unguided(self) -> "Request":
        """The same without guidance."""
        return dataclasses.replace(self, guidance="none")

    @property
    def name(self) -> str:
        """For a title."""
        return "no guidance" if self.guidance == "none" else f"{self.guidance} {self.strength:g}"

    def guided(self) -> sj.Guidance:
        """The guidance by that name."""
        makers: dict[str, Callable[[], Any]] = {
            "none": sj.identity,
            "sake": lambda: sj.sake(self.strength),
            "spread": lambda: sj.sake(self.strength, scope="batch", self_term=0.0),
            "cfg": lambda: sj.classifier_free(self.strength),
        }
        cut = [] if self.top_p == 1 else [sj.top_p(self.top_p)]
        return sj.chain(*cut, *(makers[name]() for name in self.guidance.split("+")))

    def build(self, lm: sj.LanguageModel) -> sj.Sampler:
        """The sampler for a model."""
        kind = USUAL.get(lm.config.family, "masked") if self.sampler == "auto" else self.sampler
        common: dict[str, Any] = {
            "length": self.length,
            "guidance": self.guided(),
            "draw": sj.temperature(self.temperature),
        }
        if kind == "masked":
            usual = BLOCK if self.length % BLOCK == 0 else self.length
            block = self.block or usual
            return sj.masked(lm, steps=self.steps, block=block, cache=self.cache, **common)
        remedy = f"leave it out: this model is sampled with {kind!r}"
        require(self.cache == "none", "--cache is for masked decoding", self.cache, remedy)
        require(self.block is None, "--block is for masked decoding", self.block, remedy)
        if kind == "ancestral":
            return sj.ancestral(lm, steps=self.steps or self.length, **common)
        stepwise = {} if self.steps is None else {"steps": self.steps, "first_hitting": False}
        return sj.block(lm, **stepwise, **common)
