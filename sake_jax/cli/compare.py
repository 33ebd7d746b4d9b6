"""Texts with guidance held against texts without: means with intervals, and typical pairs.

Pairs have the same noise. A verdict is given only where there are enough of them, and only where
the interval of their mean difference leaves zero out.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

import sake_jax as sj

ENOUGH = 32
"""Texts of each kind, unless asked for otherwise. The standard error of a difference in distinct-2
within a text is then 0.03; the experiment on stories finds a gain of 0.13."""
FEWEST = 8
"""Pairs for a verdict: of fewer, all may fall on one side by chance."""
TOGETHER = 4
"""Texts of a prompt that are one set."""
TYPICAL = 2
"""Pairs that are shown."""

LABELS = {
    "distinct-2 within": ("distinct-2 within a text", ".3f"),
    "distinct-2 together": (f"distinct-2 of {TOGETHER} texts", ".3f"),
    "entropy": ("entropy of a text, nats", ".2f"),
    "perplexity": ("judge's perplexity", ".2f"),
}
"""What is compared, in which words, and with which digits."""

Scores = dict[str, np.ndarray]
"""One number for each text, or for each set of texts; not a number where there is nothing."""


def score_pairs(
    prompts: Sequence[str], runs: Sequence[Any], judge: sj.LanguageModel | None
) -> list[Scores]:
    """The measures of `LABELS` of each `Generation`, text by text; perplexity only with a judge.

    Repetition is counted up to the end of a pair's shorter text: a text that ends early would look
    diverse.
    """
    texts = [[text or "" for group in run.texts for text in group] for run in runs]
    cut = [[sj.metrics.words(text) for text in every] for every in texts]
    shortest = [min(map(len, pair)) for pair in zip(*cut, strict=True)]
    before = [prompt for prompt in prompts for _ in range(runs[0].samples)]
    scores = []
    for every, words in zip(texts, cut, strict=True):
        equal = [text[:size] for text, size in zip(words, shortest, strict=True)]
        scores.append(_repetition(equal, runs[0].samples))
        if judge is not None:
            scores[-1]["perplexity"] = np.asarray(sj.metrics.perplexity(judge, every, before).each)
    return scores


def _repetition(texts: Sequence[Sequence[str]], samples: int) -> Scores:
    """Of texts as words, those of a prompt one after the other."""
    whole = samples % TOGETHER == 0  # or a set would have texts of two prompts
    starts = range(0, len(texts), TOGETHER) if whole else ()
    sets = [texts[at : at + TOGETHER] for at in starts]
    each = {
        "distinct-2 within": [sj.metrics.distinct([t]) if len(t) > 1 else np.nan for t in texts],
        "distinct-2 together": [sj.metrics.distinct(some) for some in sets],
        "entropy": [sj.metrics.sample_entropy([t]) if t else np.nan for t in texts],
    }
    return {name: np.asarray(values, float) for name, values in each.items()}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One measure of two runs, pair by pair."""

    label: str
    form: str
    """Of its numbers."""
    each: tuple[sj.metrics.Estimate, sj.metrics.Estimate]
    """The means without guidance and with it."""
    difference: sj.metrics.Estimate
    """What guidance adds, over pairs."""
    pairs: int

    @property
    def verdict(self) -> str:
        """In words.

        >>> up = sj.metrics.Estimate(0.2, low=0.1, high=0.3)
        >>> Comparison("x", ".1f", (up, up), up, pairs=32).verdict
        'more'
        >>> Comparison("x", ".1f", (up, up), up, pairs=4).verdict
        'too few to tell'
        """
        if self.pairs < FEWEST:
            return "too few to tell"
        if self.difference.low > 0:
            return "more"
        return "less" if self.difference.high < 0 else "no clear difference"

    @property
    def sentence(self) -> str:
        """The verdict with its numbers, for a line of its own."""
        difference = sj.metrics.format_interval(self.difference, "+" + self.form)
        return f"{self.label}: {self.verdict}, {difference}"


def compare_scores(plain: Scores, guided: Scores) -> dict[str, Comparison]:
    """Both runs by each measure; pairs without a number on one side are left out.

    >>> some = {"entropy": np.arange(9.0)}
    >>> print(compare_scores(some, {"entropy": np.arange(9.0) + 1})["entropy"].sentence)
    entropy of a text, nats: more, +1.00 (+1.00 to +1.00)
    """
    compared = {}
    for name, (label, form) in LABELS.items():
        if name in plain:
            there = np.isfinite(plain[name]) & np.isfinite(guided[name])
            one, other = plain[name][there], guided[name][there]
            if len(one):
                each = (sj.metrics.estimate(one), sj.metrics.estimate(other))
                gained = sj.metrics.estimate(other - one)
                compared[name] = Comparison(label, form, each, gained, len(one))
    return compared


def typical_pairs(plain: Scores, guided: Scores, count: int = TYPICAL) -> list[int]:
    """The pairs that lie nearest to both means of distinct-2 within a text, by their number.

    Not the first ones, which may be lucky, and not the best ones, which are.

    >>> name = "distinct-2 within"
    >>> typical_pairs({name: np.array([0.1, 0.5, 0.9])}, {name: np.array([0.9, 0.6, 0.3])}, 1)
    [1]
    """
    far = np.zeros(len(plain["distinct-2 within"]))
    for scores in (plain["distinct-2 within"], guided["distinct-2 within"]):
        there = np.isfinite(scores)
        middle = scores[there].mean() if there.any() else 0.0
        far += np.where(there, np.abs(scores - middle), np.inf)
    return sorted(int(at) for at in np.argsort(far, kind="stable")[:count])
