"""Samples of a model by its family's own sampler, and what they are worth."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import sake_jax as sj
from sake_jax.experiments.models import Model, about_model, as_model, model_name
from sake_jax.generation import Prompt, Row
from sake_jax.metrics import default_judge, load_judge, measure_texts

PROMPTS = ("once upon a time", "one day, a boy", "the little dog", "in the big forest")
IDS = ([1, 2, 3, 4], [5, 6, 7, 8])
"""Prompts for models without a tokenizer: any will do where no one reads."""
MEASURES = {
    "perplexity": ("perplexity", ".1f"),
    "within": ("distinct-2 within", ".3f"),
    "across": ("distinct-2 across", ".3f"),
    "entropy": ("entropy", ".2f"),
    "size": ("words", ".1f"),
    "correlation": ("Corr[z, ψ]", "+.2f"),
    "redundancy": ("redundancy", ".2f"),
    "rms": ("RMS of ψ", ".3f"),
}
"""What tables call what is measured, and how many digits it has."""


@dataclasses.dataclass
class Writer:
    """A model that writes, and who judges it; both are loaded when first asked for."""

    model: Model
    judge: str
    """A causal model, "none", or "auto": the built-in model's twin, or SmolLM2 if installed."""
    samples: int
    """Of each prompt."""
    length: int
    """Tokens of a sample, one for each step."""
    temperature: float
    """Of the draw."""

    def __post_init__(self) -> None:
        if self.judge == "auto":
            self.judge = default_judge(model_name(self.model))

    @property
    def settings(self) -> dict[str, Any]:
        """All of it, for a study's folder."""
        sizes = {"samples": self.samples, "length": self.length, "temperature": self.temperature}
        return about_model(self.model) | {"judge": self.judge} | sizes

    @functools.cached_property
    def lm(self) -> sj.LanguageModel:
        return as_model(self.model)

    @functools.cached_property
    def critic(self) -> sj.LanguageModel | None:
        """The judge itself."""
        return None if self.judge == "none" else load_judge(self.judge)

    @functools.cached_property
    def prompts(self) -> Sequence[Prompt]:
        """Texts, or token ids where there is no tokenizer."""
        try:
            return PROMPTS if self.lm.tokenizer else IDS
        except ValueError:
            return IDS

    def write(
        self, guidance: sj.Guidance | None, seed: int, record: str = "signal"
    ) -> sj.Generation:
        """Samples of every prompt; with one seed, all guidances have the same noise."""
        draw = sj.temperature(self.temperature)
        sampler = sj.sampler_for(
            self.lm, length=self.length, guidance=guidance, draw=draw, record=record
        )
        rows = self.samples * len(self.prompts)
        key = jax.random.key(seed)
        return sj.generate(
            self.lm, sampler, self.prompts, samples=self.samples, batch=rows, key=key
        )

    def measures(self, out: sj.Generation) -> dict[str, float]:
        """Diversity of the samples, and the judge's perplexity where there is text."""
        samples = [_sample(row) for row in out.rows]
        groups = [samples[at : at + out.samples] for at in range(0, len(samples), out.samples)]
        judge = self.critic if all(isinstance(each, str) for each in samples) else None
        measured = measure_texts(groups, prompts=list(map(str, self.prompts)), judge=judge)
        names = {"distinct-2 within": "within", "distinct-2 across": "across", "words": "size"}
        names |= {"perplexity": "perplexity", "entropy": "entropy"}
        return {names[each]: value for each, value in measured.items() if each in names}


def busy(info: sj.Info) -> np.ndarray:
    """(S, B) which rows had something to write at which steps."""
    assert info.base_entropy is not None, "recorded with the signals"
    return np.asarray(info.base_entropy) > 0


def _sample(row: Row) -> str | list[int]:
    """A sample's text, or its token ids where there is no text."""
    return np.asarray(row.tokens)[row.written].tolist() if row.text is None else row.text
