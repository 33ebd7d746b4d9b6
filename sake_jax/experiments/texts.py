"""What the experiments with texts share: the methods, and what is measured.

A sample is one text or several parts of one, such as the items of a list. Every method has the
same number of settings; with one seed, all of them draw with the same noise.
"""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import sake_jax as sj
from sake_jax.checks import whole
from sake_jax.experiments.models import Model, as_model, model_name
from sake_jax.experiments.study import Cell, Result, Study
from sake_jax.generation import Prompt, model_identity, read_prompts
from sake_jax.metrics import (
    Encoder,
    cosine_diversity,
    default_judge,
    distinct,
    load_encoder,
    load_judge,
    measure_texts,
    minilm,
    perplexity,
    words,
)

HOT, FIRST = 2.0, 0.1
"""The control's temperature, and for which part of a run."""
BASELINE, CONTROL = "temperature", "hot start"


class TextSetting(NamedTuple):
    """How strongly a method guides, and the temperature of the draw."""

    strength: float
    temperature: float

    @property
    def name(self) -> str:
        strength = f"strength {self.strength:g}, " if self.strength else ""
        return f"{strength}T = {self.temperature:g}"


class Method(NamedTuple):
    """A guidance of a strength, by six settings."""

    guidance: Callable[[float], sj.Guidance]
    settings: tuple[TextSetting, ...]


def _grid(strengths: Sequence[float], temperatures: Sequence[float]) -> tuple[TextSetting, ...]:
    return tuple(TextSetting(g, t) for g in strengths for t in temperatures)


USUAL, HIGH, LOW = (0.7, 1.0, 1.3), (0.9, 1.2, 1.5), (0.5, 0.7, 0.9)
"""Temperatures that lead to the baseline's perplexities: higher ones for what sharpens."""
METHODS = {
    BASELINE: Method(lambda _: sj.identity(), _grid([0], [0.1, 0.4, 0.7, 1.0, 1.3, 1.6])),
    CONTROL: Method(lambda _: sj.identity(), _grid([0], [0.1, 0.3, 0.5, 0.7, 0.85, 1.0])),
    "D-CFG": Method(sj.classifier_free, _grid([0.5, 1.5], USUAL)),
    "SAKE": Method(sj.sake, _grid([0.5, 1.0], HIGH)),
    "SAKE repulsion": Method(lambda g: sj.sake(g, self_term=0.0), _grid([0.5, 1.0], LOW)),
    "SAKE across samples": Method(
        lambda g: sj.sake(g, scope="batch", self_term=0.0), _grid([0.5, 1.0], LOW)
    ),
}


class Sample(NamedTuple):
    """What was written."""

    before: str
    """What the judge reads first."""
    text: str
    """What it judges."""
    parts: list[str]
    """What is held against itself and others: the text, or its items."""


Written = tuple[sj.Generation, list[list[Sample]]]
"""A generation, and the samples of each prompt."""
Writer = Callable[[sj.Guidance, sj.Guidance, int], Written]
"""From guidance, draw and seed."""


@dataclasses.dataclass(frozen=True)
class Bench:
    """Who writes and who measures."""

    lm: sj.LanguageModel
    judge: sj.LanguageModel
    encoder: Encoder | None
    """Of meanings, if its package is installed."""
    names: Cell
    """Of all three, so that a folder never holds results of different ones."""

    @property
    def title(self) -> str:
        """Who they are, in a sentence."""
        return f"Written by {Path(self.names['model']).name}, judged by {self.judge_name}."

    @property
    def judge_name(self) -> str:
        """Whose perplexity it is."""
        return Path(self.names["judge"]).name


def prepare(model: Model, judge: str | Path) -> Bench:
    """Loads a model and its judge; "auto" is the built-in model's twin, or else SmolLM2."""
    name = model_name(model)
    judge = default_judge(name, "smollm2") if judge == "auto" else judge
    lm, critic = as_model(model), load_judge(judge)
    encoder = load_encoder() if minilm() else None
    names = {"model": name, "judge": str(judge), "meaning": encoder is not None}
    checksums = [model_identity(each)["checksum"] for each in (lm, critic)]
    weights = dict(zip(("weights", "judge's weights"), checksums, strict=True))
    return Bench(lm, critic, encoder, names | weights)


def lines_of(path: str | Path | None, usual: Sequence[str]) -> list[str]:
    """The lines of a file, but for empty ones; the usual ones without a file."""
    return list(usual) if path is None else read_prompts(path)


def size(name: str, given: int | None, usual: int, at_least: int = 1) -> int:
    """A size as it was given, or the usual one."""
    return whole(name, usual if given is None else given, at_least=at_least)


def text_sampler(
    lm: sj.LanguageModel,
    length: int,
    guidance: sj.Guidance,
    draw: sj.Guidance,
    *,
    steps: int | None = None,
    ends: bool = False,
) -> sj.Sampler:
    """The sampler of a model's own family, one token a step; in blocks unless `steps` are given.

    Without `ends` no text ends early: short ones would look diverse.
    """
    end_id = lm.config.eos_id
    never = [] if ends or end_id is None else [sj.forbid([end_id])]
    guidance = sj.chain(*never, guidance)
    block = length if steps and lm.config.sampler == "masked" else None
    options = {"guidance": guidance, "draw": draw, "record": "signal"}
    return sj.sampler_for(lm, length=length, steps=steps, block=block, **options)


def generate(
    lm: sj.LanguageModel,
    sampler: sj.Sampler,
    prompts: Sequence[Prompt],
    samples: int,
    seed: int,
    infill: bool = False,
) -> sj.Generation:
    """All samples of all prompts, together."""
    rows, key = samples * len(prompts), jax.random.key(seed)
    return sj.generate(lm, sampler, prompts, samples=samples, batch=rows, key=key, infill=infill)


def measure(study: Study, bench: Bench, write: Writer, seeds: int, quick: bool) -> None:
    """Measures every setting of every method."""
    cells = [
        {"method": method, **setting._asdict(), "seed": seed}
        for seed in range(seeds)
        for method in METHODS
        for setting in settings_of(method, quick)
    ]
    study.measure([[cell] for cell in cells], lambda group: [_found(bench, write, group[0])])


def settings_of(method: str, quick: bool) -> tuple[TextSetting, ...]:
    """All six of a method, or the first and the last."""
    return METHODS[method].settings[:: 5 if quick else 1]


def _found(bench: Bench, write: Writer, cell: Cell) -> Result:
    heat, method = cell["temperature"], cell["method"]
    # A schedule for all of them, so that the control is no program of its own.
    draw = sj.temperature(sj.piecewise({0.0: HOT if method == CONTROL else heat, FIRST: heat}))
    out, groups = write(METHODS[method].guidance(cell["strength"]), draw, cell["seed"])
    measures = {"perplexity": _perplexity(bench.judge, groups)} | diversities(groups, bench.encoder)
    if out.info is not None and out.info.signals:
        busy = np.asarray(out.info.base_entropy) > 0
        measures["correlation"] = float(np.asarray(out.info.signals[0].correlation)[busy].mean())
    return measures | {"example": groups[0][0].text}


def _perplexity(judge: sj.LanguageModel, groups: list[list[Sample]]) -> float:
    samples = list(chain(*groups))
    return perplexity(judge, [s.text for s in samples], [s.before for s in samples]).value


def diversities(groups: list[list[Sample]], encoder: Encoder | None) -> Result:
    """How much samples repeat themselves and others of their prompt; means over samples, or over
    prompts."""
    measured = measure_texts([[sample.parts for sample in group] for group in groups])
    # Here samples without two words count as 0: an empty list is not diverse.
    inside = [distinct([words(part) for part in sample.parts]) for sample in chain(*groups)]
    measures = {
        "inside": float(np.mean(inside)),
        "across": measured["distinct-2 across"],
        "entropy": measured["entropy"],
        "words": measured["words"],
    }
    return measures if encoder is None else measures | _meanings(groups, encoder)


def _meanings(groups: list[list[Sample]], encoder: Encoder) -> Result:
    """Semantic diversity of the samples of a prompt, and of the parts of a sample."""
    joined = [[" ".join(sample.parts) for sample in group] for group in groups]
    parts = [sample.parts for sample in chain(*groups) if len(sample.parts) > 1]
    different = list(dict.fromkeys(chain(*joined, *parts)))
    vectors = dict(zip(different, encoder.embed(different), strict=True))

    def mean(sets: list[list[str]]) -> float:
        each = [cosine_diversity(np.stack([vectors[t] for t in texts])) for texts in sets]
        return float(np.mean(each))

    return {"meaning": mean(joined)} | ({"meaning inside": mean(parts)} if parts else {})
