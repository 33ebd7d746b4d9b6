"""From the command line's words to a sampler."""

import dataclasses
from collections.abc import Callable
from typing import Any

import sake_jax as sj
from sake_jax.checks import one_of, require
from sake_jax.samplers.usual import KINDS, kind_of, usual

GUIDANCES = ("none", "sake", "spread", "cfg")


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
        one_of("sampler", self.sampler, KINDS)

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
        kind = kind_of(lm) if self.sampler == "auto" else self.sampler
        options: dict[str, Any] = {"cache": self.cache, "block": self.block}
        if kind != "masked":
            remedy = f"leave it out: this model is sampled with {kind!r}"
            require(self.cache == "none", "--cache is for masked decoding", self.cache, remedy)
            require(self.block is None, "--block is for masked decoding", self.block, remedy)
            options = {}
        return usual(
            lm,
            length=self.length,
            kind=kind,
            steps=self.steps,
            guidance=self.guided(),
            draw=sj.temperature(self.temperature),
            **options,
        )
