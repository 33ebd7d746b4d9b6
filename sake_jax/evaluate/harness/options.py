"""The model_args, and what becomes of a task's generation_kwargs."""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import warning_once

from sake_jax.checks import number, require, whole
from sake_jax.samplers import Request

LENGTH = 256
"""Tokens that lm_eval's models write where nobody says how many."""
LOADING = ("model", "dtype", "data", "fsdp", "tensor")
KNOWN = "until, max_gen_toks, do_sample, temperature, top_p and num_beams=1"

logger = logging.getLogger(__name__)


class TextOptions(NamedTuple):
    """How the texts of one request are drawn."""

    stop: tuple[str, ...]
    length: int
    temperature: float
    top_p: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How to sample and score, in the words of model_args."""

    request: Request = dataclasses.field(default_factory=Request)
    """The other words of `Request`: guidance, strength, steps, block, sampler, cache, ..."""
    temperature: float | None = None
    """None: as the task says."""
    top_p: float | None = None
    """None: as the task says."""
    length: int | None = None
    """None: as the task says."""
    seed: int = 0
    """Of texts and of likelihoods' noise."""
    mc_samples: int = 128
    """Draws of the noise for each likelihood."""
    mc_batch: int = 32
    """Draws in one pass of the network."""
    cfg: float = 0.0
    """Scale of classifier-free guidance in likelihoods, which LLaDA reports some tasks with."""
    greedy: bool = True
    """Whether likelihoods come with is_greedy, at as many more passes as an answer has tokens."""
    truncate: bool = False
    """Whether contexts lose their first tokens where they do not fit; else they are refused."""

    def __post_init__(self) -> None:
        whole("seed", self.seed, at_least=0)
        whole("mc_samples", self.mc_samples)
        whole("mc_batch", self.mc_batch)
        number("cfg", self.cfg, at_least=0)
        if self.length is not None:
            whole("length", self.length)

    @property
    def words(self) -> dict[str, Any]:
        """All of them, as `parse_options` takes them."""
        own = {name: getattr(self, name) for name in OWN}
        return dataclasses.asdict(self.request) | own

    def resolve(self, wanted: dict[str, Any]) -> TextOptions:
        """How texts of a request with these generation_kwargs are drawn."""
        drawn = {"temperature": 1.0} if wanted.get("do_sample") else {}
        left: dict[str, Any] = dict(normalize_gen_kwargs(drawn | wanted, self.length or LENGTH))
        left.pop("do_sample")  # the temperature says it
        stop = tuple(dict.fromkeys(text for text in left.pop("until") if text))
        length = _decide("length", self.length, left.pop("max_gen_toks"), LENGTH)
        temperature = _decide("temperature", self.temperature, left.pop("temperature", None), 0.0)
        mass = left.pop("top_p", None)
        top_p = _decide("top_p", self.top_p, mass if temperature else None, 1.0)
        if left.get("num_beams") == 1:
            left.pop("num_beams")
        rule, remedy = f"generation_kwargs must be of {KNOWN}", "leave the others out"
        require(not left, rule, left, remedy)
        return TextOptions(stop, length, temperature, top_p)

    def request_for(self, chosen: TextOptions) -> Request:
        """The request that draws them."""
        _, length, temperature, top_p = chosen
        decided = {"length": length, "temperature": temperature, "top_p": top_p}
        return dataclasses.replace(self.request, **decided)


OWN = tuple(field.name for field in dataclasses.fields(Options) if field.name != "request")
THEIRS = tuple(f.name for f in dataclasses.fields(Request) if f.name not in OWN)


def parse_options(words: Mapping[str, Any]) -> Options:
    """Options from model_args; lm_eval reads the word "none" as None."""
    rule = f"model_args must be of {', '.join((*LOADING, *THEIRS, *OWN))}"
    unknown = sorted(words.keys() - {*THEIRS, *OWN})
    require(not unknown, rule, unknown, "leave the others out")
    given = {name: word for name, word in words.items() if word is not None}
    for name in given.keys() & {"greedy", "truncate"}:
        right = isinstance(given[name], bool)
        require(right, f"{name} must be true or false", given[name], "pick one")
    request = Request(**{name: given[name] for name in THEIRS if name in given})
    return Options(request=request, **{name: given[name] for name in OWN if name in given})


def _decide(name: str, given: Any, task: Any, otherwise: Any) -> Any:
    """The model_args' word, else the task's, else lm_eval's own."""
    if given is None:
        return otherwise if task is None else task
    if task not in (None, given):
        rule = f"model_args and the task should agree on {name}, got {given} and {task}"
        warning_once(logger, f"{rule}; {given} holds. Leave it out of model_args for the task's.")
    return given
