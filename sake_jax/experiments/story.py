"""Stories that begin alike: a judge's perplexity against diversity inside and across samples.

The paper's creative writing, on the built-in model or any other one.
"""

from collections.abc import Sequence
from pathlib import Path

import sake_jax as sj
from sake_jax.experiments import texts
from sake_jax.experiments.models import Model
from sake_jax.experiments.study import Study
from sake_jax.experiments.texts import Sample
from sake_jax.experiments.texts_report import report

BEGINNINGS = (
    "once upon a time, there was a little girl named lily.",
    "one day, a boy named tim found a small box in the garden.",
    "the old dog was sad because he had no friends.",
    "it was raining, and the children had to stay inside.",
    "deep in the forest, there lived a tiny bear who",
    "sara and her mom went to the store to buy",
    "the bird looked down from the tall tree and saw",
    "on his birthday, ben got a very strange present.",
)
LABELS = {
    "inside": "distinct-2 inside a sample",
    "across": "distinct-2 across samples of a prompt",
    "meaning": "semantic diversity across samples",
}


def story(
    folder: str | Path,
    *,
    quick: bool = False,
    seeds: int = 5,
    progress: bool = True,
    model: Model = "tinystories",
    judge: str | Path = "auto",
    prompts: str | Path | None = None,
    samples: int | None = None,
    length: int | None = None,
) -> Study:
    """Stories that begin alike, and what a judge says of them; writes table.md and figures.

    Args:
      folder: for results.jsonl and the report; a stopped run goes on there.
      quick: fewer prompts, samples, tokens, settings and seeds, to see it work.
      seeds: runs of each setting.
      progress: whether to show a bar.
      model: who writes: a name, a folder, or a model.
      judge: a causal model; "auto" is the built-in model's twin, or else SmolLM2.
      prompts: a file with one beginning on each line.
      samples: of each beginning, 4 by default.
      length: tokens of a sample, one for each step, 64 by default.
    """
    bench = texts.prepare(model, judge)
    beginnings = texts.lines_of(prompts, BEGINNINGS)[: 2 if quick else None]
    samples = texts.size("samples", samples, 2 if quick else 4, at_least=2)
    length = texts.size("length", length, 16 if quick else 64)
    seeds = min(seeds, 2) if quick else seeds
    sizes = {"prompts": beginnings, "samples": samples, "length": length}
    study = Study(folder, {"experiment": "story", **bench.names, **sizes}, progress)
    texts.measure(study, bench, telling(bench.lm, beginnings, samples, length), seeds, quick)
    about = (
        f"{samples} samples of each of {len(beginnings)} beginnings, {length} tokens, one a step; "
        f"end tokens are forbidden. Perplexity of a sample after its beginning. {bench.title}"
    )
    report(study, "Stories", about, LABELS, seeds, quick, bench.judge_name)
    return study


def telling(
    lm: sj.LanguageModel, beginnings: Sequence[str], samples: int, length: int
) -> texts.Writer:
    """Goes on from beginnings."""

    def write(guidance: sj.Guidance, draw: sj.Guidance, seed: int) -> texts.Written:
        sampler = texts.text_sampler(lm, length, guidance, draw)
        out = texts.generate(lm, sampler, beginnings, samples, seed)
        pairs = zip(beginnings, out.texts, strict=True)
        return out, [[Sample(before, t or "", [t or ""]) for t in group] for before, group in pairs]

    return write
