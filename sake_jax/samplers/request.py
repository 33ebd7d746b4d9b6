"""From plain words, as a command line or a results file has them, to a sampler."""

import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

from sake_jax import guidance as guidances
from sake_jax.automata import read_form
from sake_jax.checks import one_of, require
from sake_jax.core import Guidance
from sake_jax.models import LanguageModel
from sake_jax.samplers import reveal
from sake_jax.samplers.auto import KINDS, sampler_for
from sake_jax.samplers.noise import systematic
from sake_jax.samplers.sampler import Sampler

GUIDANCES = ("none", "sake", "spread", "distinct", "paper", "cfg")
ORDERS = {
    "auto": None,
    "confidence": reveal.confidence,
    "margin": reveal.margin,
    "entropy": reveal.low_entropy,
    "random": reveal.random,
    "even": reveal.stratified(reveal.random),
    "leftmost": reveal.leftmost,
}
"""Reveal rules by the words of `Request.order`."""


@dataclasses.dataclass(frozen=True)
class Request:
    """How to sample, in plain words: the one table of sampling options.

    The options of the command line with their help and bounds, the words of lm_eval's model_args,
    settings files and searches are all made from these fields: a new option is a new field here,
    and what `build` does with it. A field's metadata is what `typer.Option` takes.

    >>> import sake_jax as sj
    >>> request = sj.Request(guidance="sake+cfg", strength=0.5, length=32)
    >>> request.build(sj.load("tinystories")).plan.length
    32
    """

    guidance: str = field(
        default="none",
        metadata={
            "help": "'sake': a text repeats itself less; 'spread': the texts of a prompt differ "
            "more; 'distinct': they keep from becoming the same; 'paper': the paper's algorithm to "
            "the letter; 'cfg': closer to the prompt; 'none'; or some, as in 'sake+spread'."
        },
    )
    strength: float = field(default=1.0, metadata={"help": "Of the guidance; 0 is none.", "min": 0})
    temperature: float = field(
        default=1.0, metadata={"help": "Of the draw; 0 is greedy.", "min": 0}
    )
    top_p: float = field(
        default=1.0, metadata={"help": "Draw from the likeliest tokens, of this mass."}
    )
    match: str = field(
        default="",
        metadata={
            "help": "A regular expression that texts must match from beginning to end, or a JSON "
            "Schema: its text, or a file that ends in .json."
        },
    )
    length: int = field(default=64, metadata={"help": "Tokens to write.", "min": 1})
    steps: int | None = field(
        default=None,
        metadata={"help": "Evaluations of the network; one a token by default.", "min": 1},
    )
    block: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of a block; blocks are written left to right. 32 if that divides the "
            "length.",
            "min": 1,
        },
    )
    sampler: str = field(
        default="auto",
        metadata={
            "help": "'masked', 'ancestral', 'block' or 'revising'; by the model's family if 'auto'."
        },
    )
    cache: str = field(
        default="none",
        metadata={"help": "'none', 'prefix' or 'dual': faster, an approximation."},
    )
    refresh: int | None = field(
        default=None,
        metadata={
            "help": "Steps of a block after which its cache is made new; only at the first by "
            "default. Fewer are nearer to no cache.",
            "min": 1,
        },
    )
    drafts: str = field(
        default="1",
        metadata={
            "help": "Canvases that one read of the network serves, such as 4: fewer reads, the "
            "same tokens; 'auto': as many as pay on the device."
        },
    )
    bandwidth: float | None = field(
        default=None,
        metadata={"help": "Sigma of the guidance's kernel; the rows' median distance by default."},
    )
    """For "paper" there is no default: the paper's guidance needs one."""
    attention_bandwidth: float | None = field(
        default=None,
        metadata={"help": "How far, in tokens, a text's own rows repel; 20 by default."},
    )
    budget: float | None = field(
        default=None,
        metadata={
            "help": "How far, in nats, 'sake' and 'spread' may move the draw of a position; such "
            "as 0.1 with --strength 5 --temperature 0.15 --order random.",
            "min": 0,
        },
    )
    order: str = field(
        default="auto",
        metadata={
            "help": "Which tokens of a block are written first: the surest, by 'confidence', "
            "'margin' or 'entropy'; 'random'; 'even', at random but texts of a prompt begin at "
            "different places; 'leftmost'; by the model's family if 'auto'."
        },
    )

    crowd: float | None = field(
        default=None,
        metadata={
            "help": "Texts of a prompt share out their draws among them; as long as m of them are "
            "the same, they draw at m^CROWD times the temperature. Try 1 with --order even and "
            "--temperature 0.1.",
            "min": 0,
        },
    )

    TAKERS: ClassVar[dict[str, tuple[str, ...]]] = {
        "bandwidth": ("sake", "spread", "paper"),
        "attention_bandwidth": ("sake", "paper"),
        "budget": ("sake", "spread"),
    }
    """Options that belong to some guidances alone, and to which."""

    def __post_init__(self) -> None:
        names = self.guidance.split("+")
        for name in names:
            one_of("guidance", name, GUIDANCES)
        one_of("sampler", self.sampler, KINDS)
        one_of("order", self.order, ORDERS)
        for name in self._idle(self.guidance):
            rule = f"{name} is for the guidances {', '.join(map(repr, self.TAKERS[name]))}"
            given = getattr(self, name)
            require(given is None, rule, given, "leave it out, or name one of them")
        rule, remedy = "drafts must be a whole number, or 'auto'", "such as 4"
        right = self.drafts == "auto" or str(self.drafts).isdecimal()
        require(right, rule, self.drafts, remedy)
        rule, remedy = "the paper's guidance needs a bandwidth", "give one, or use 'sake'"
        require("paper" not in names or self.bandwidth, rule, self.bandwidth, remedy)

    @classmethod
    def _idle(cls, guidance: str) -> list[str]:
        """The options that belong to other guidances."""
        names = set(guidance.split("+"))
        return [option for option, takers in cls.TAKERS.items() if not names & set(takers)]

    def changed(self, **changes: Any) -> "Request":
        """The same with other options; what another guidance does not take is left out with the
        guidance that took it, unless it is given here.

        >>> import sake_jax as sj
        >>> sj.Request(guidance="spread", budget=0.1).changed(guidance="none").budget is None
        True
        """
        free = dict.fromkeys(self._idle(changes.get("guidance", self.guidance)))
        return dataclasses.replace(self, **free | changes)

    @property
    def unguided(self) -> "Request":
        """The same without guidance."""
        return self.changed(guidance="none")

    @property
    def name(self) -> str:
        """For a title."""
        return "no guidance" if self.guidance == "none" else f"{self.guidance} {self.strength:g}"

    def guided(self) -> Guidance:
        """The guidance by that name."""
        width = {} if self.bandwidth is None else {"bandwidth": self.bandwidth}
        reach = self.attention_bandwidth
        near = {} if reach is None else {"attention_bandwidth": reach}
        cap = {} if self.budget is None else {"kl_budget": self.budget}
        across: dict[str, Any] = {"scope": "batch", "self_term": 0.0}
        makers: dict[str, Callable[[], Any]] = {
            "none": guidances.identity,
            "sake": lambda: guidances.sake(self.strength, **width, **near, **cap),
            "spread": lambda: guidances.sake(self.strength, **across, **width, **cap),
            "distinct": lambda: guidances.distinct(self.strength),
            "paper": lambda: guidances.paper_sake(self.strength, **width, **near),
            "cfg": lambda: guidances.classifier_free(self.strength),
        }
        cut = [] if self.top_p == 1 else [guidances.top_p(self.top_p)]
        return guidances.chain(*cut, *(makers[name]() for name in self.guidance.split("+")))

    @property
    def _drafts(self) -> int | str:
        return "auto" if self.drafts == "auto" else int(self.drafts)

    def _in_form(self, lm: LanguageModel) -> Guidance:
        """The guidance, after the form if there is one: filters then choose among what matches."""
        if not self.match:
            return self.guided()
        ends = [] if lm.config.eos_id is None else [lm.config.eos_id]
        form = guidances.matches(read_form(self.match), lm.tokenizer, ends=ends)
        return guidances.chain(form, self.guided())

    def build(self, lm: LanguageModel) -> Sampler:
        """The sampler for a model."""
        return sampler_for(
            lm,
            length=self.length,
            kind=self.sampler,
            steps=self.steps,
            block=self.block,
            # "none" is what masked decoding has by itself, and no word for presets without caches.
            cache=None if self.cache == "none" else self.cache,
            refresh=self.refresh,
            # So is "1".
            drafts=None if self.drafts == "1" else self._drafts,
            guidance=self._in_form(lm),
            draw=guidances.temperature(self.temperature),
            reveal=ORDERS[self.order],
            noise=None if self.crowd is None else systematic(self.crowd),
        )
