"""What is usually said of generated texts, in one go."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from sake_jax.metrics.diversity import Units, distinct, sample_entropy, words
from sake_jax.metrics.judge import perplexity
from sake_jax.models import LanguageModel

Sample = str | Sequence[str] | Sequence[int]
"""A text; the parts of one, such as the items of a list; or token ids where there is no text."""


def measure_texts(
    groups: Sequence[Sequence[Sample]],
    *,
    prompts: Sequence[str] = (),
    judge: LanguageModel | None = None,
) -> dict[str, float]:
    """Measures how diverse texts are and, with a judge, how fluent.

    - "distinct-2": different pairs of words of all texts of all prompts, as a share of all pairs.
    - "distinct-2 within": of each text alone, in the mean; texts without a pair are left out.
    - "distinct-2 across": of the texts of a prompt together, in the mean over prompts.
    - "entropy": of each text's own words, in nats, in the mean; see `sample_entropy`.
    - "words": of a text, in the mean.
    - "perplexity": of all texts under the judge, each after its prompt.

    >>> measured = measure_texts([["a dog ran", "a dog sat"], ["the end of the end", "so"]])
    >>> {name: round(value, 2) for name, value in measured.items()}
    {'distinct-2': 0.75, 'distinct-2 within': 0.92, 'distinct-2 across': 0.75, 'entropy': 0.81, \
'words': 3.0}

    Args:
      groups: the samples of each prompt.
      prompts: one for each group, which the judge reads before its texts; none by default.
      judge: a causal model, such as `load_judge` gives; texts must be texts then.
    """
    cut = [[_units(sample) for sample in group] for group in groups]
    samples = list(chain(*cut))
    joined = [list(chain(*parts)) for parts in samples]
    within = [distinct(parts) for parts in samples if any(len(part) > 1 for part in parts)]
    measured = {
        "distinct-2": distinct(list(chain(*samples))),
        "distinct-2 within": float(np.mean(within)) if within else 0.0,
        "distinct-2 across": float(np.mean([distinct(list(chain(*group))) for group in cut])),
        "entropy": sample_entropy(joined),
        "words": float(np.mean([len(units) for units in joined])),
    }
    if judge is not None:
        given = prompts or [""] * len(groups)
        before = [prompt for prompt, group in zip(given, groups, strict=True) for _ in group]
        texts = [str(text) for group in groups for text in group]
        measured["perplexity"] = perplexity(judge, texts, before).value
    return measured


def _units(sample: Sample) -> list[Units]:
    """The parts of a sample, each as words or as token ids."""
    if isinstance(sample, str):
        return [words(sample)]
    if all(isinstance(part, str) for part in sample):
        return [words(str(part)) for part in sample]
    return [list(sample)]
