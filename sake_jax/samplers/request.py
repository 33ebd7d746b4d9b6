"""From plain words, as a command line or a results file has them, to a sampler."""

import dataclasses
from collections.abc import Callable
from typing import Any

from sake_jax import guidance as guidances
from sake_jax.checks import one_of, require
from sake_jax.core import Guidance
from sake_jax.models import LanguageModel
from sake_jax.samplers.step import Sampler
from sake_jax.samplers.usual import KINDS, kind_of, usual

GUIDANCES = ("none", "sake", "spread", "paper", "cfg")


@dataclasses.dataclass(frozen=True)
class Request:
    """How to sample.

    >>> import sake_jax as sj
    >>> request = Request(guidance="sake+cfg", strength=0.5, length=32)
    >>> request.build(sj.load("tinystories")).plan.length
    32
    """

    guidance: str = "none"
    """Names of `GUIDANCES`, joined by "+"."""
    strength: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    length: int = 64
    steps: int | None = None
    block: int | None = None
    sampler: str = "auto"
    cache: str = "none"
    bandwidth: float | None = None
    """σ of the kernel; by the rows' distances if None, but for "paper", which needs it."""
    attention_bandwidth: float | None = None
    """σ_attn, where rows of one text repel each other; 20 if None."""

    def __post_init__(self) -> None:
        names = self.guidance.split("+")
        for name in names:
            one_of("guidance", name, GUIDANCES)
        one_of("sampler", self.sampler, KINDS)
        has_kernel = any(name in ("sake", "spread", "paper") for name in names)
        rule, remedy = "bandwidths are for guidances with a kernel", "leave them out"
        given = (self.bandwidth, self.attention_bandwidth)
        require(has_kernel or given == (None, None), rule, given, remedy)
        rule, remedy = "the paper's guidance needs a bandwidth", "give one, or use 'sake'"
        require("paper" not in names or self.bandwidth, rule, self.bandwidth, remedy)

    @property
    def unguided(self) -> "Request":
        """The same without guidance."""
        free = {"guidance": "none", "bandwidth": None, "attention_bandwidth": None}
        return dataclasses.replace(self, **free)

    @property
    def name(self) -> str:
        """For a title."""
        return "no guidance" if self.guidance == "none" else f"{self.guidance} {self.strength:g}"

    def guided(self) -> Guidance:
        """The guidance by that name."""
        width = {} if self.bandwidth is None else {"bandwidth": self.bandwidth}
        reach = self.attention_bandwidth
        near = {} if reach is None else {"attention_bandwidth": reach}
        makers: dict[str, Callable[[], Any]] = {
            "none": guidances.identity,
            "sake": lambda: guidances.sake(self.strength, **width, **near),
            "spread": lambda: guidances.sake(self.strength, scope="batch", self_term=0.0, **width),
            "paper": lambda: guidances.paper_sake(self.strength, **width, **near),
            "cfg": lambda: guidances.classifier_free(self.strength),
        }
        cut = [] if self.top_p == 1 else [guidances.top_p(self.top_p)]
        return guidances.chain(*cut, *(makers[name]() for name in self.guidance.split("+")))

    def build(self, lm: LanguageModel) -> Sampler:
        """The sampler for a model."""
        kind = kind_of(lm) if self.sampler == "auto" else self.sampler
        options: dict[str, Any] = {"cache": self.cache, "block": self.block}
        if kind != "masked":
            remedy = f"leave it out: this model is sampled with {kind!r}"
            require(self.cache == "none", "cache is for masked decoding", self.cache, remedy)
            require(self.block is None, "block is for masked decoding", self.block, remedy)
            options = {}
        return usual(
            lm,
            length=self.length,
            kind=kind,
            steps=self.steps,
            guidance=self.guided(),
            draw=guidances.temperature(self.temperature),
            **options,
        )
