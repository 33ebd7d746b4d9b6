"""From problems made by code to examples: a prompt and its answer in rows of one length.

A recipe names who makes them:

    [data]
    problems = "countdown"          # one of `SOURCES`, or your own: "package.module:Class"
    options = {numbers = 3}         # what the class is called with

Prompts are never masked and are not learned: the loss is that of the answers.
"""

import importlib
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sake_jax.checks import require
from sake_jax.training.recipe import PairsData, Training

SOURCES = {
    "countdown": "sake_jax.evaluate.countdown:Countdown",
    "products": "sake_jax.evaluate.products:Products",
}
"""Where the problems are that have a name."""
END, MASK = "<|endoftext|>", "<|mask|>"
HELD_OUT = 256
"""Problems for validation."""
AHEAD = 64
"""Batches that are made at once."""


@runtime_checkable
class Pairs(Protocol):
    """What makes problems. Words are what is between spaces; each is a token."""

    @property
    def words(self) -> Sequence[str]:
        """Every word that occurs."""
        ...

    def pairs(self, split: str, count: int, seed: Sequence[int]) -> Sequence[tuple[str, str]]:
        """Prompts and answers of a split, "train" or "development", the same for the same seed.

        All prompts have the same number of words, and so have all answers; prompts may be empty.
        """
        ...


class PairsExamples:
    """Fresh problems at every step; which ones depends on the seed and the step alone."""

    bytes_per_token: float | None = None
    """Bytes mean nothing here."""

    def __init__(self, data: PairsData, training: Training, tokenizer: Any):
        self.source, self.seed, self.count = make_source(data), training.seed, training.batch
        self.ids = tokenizer.get_vocab()
        prompt, answer = self.source.pairs("train", 1, (self.seed, 0))[0]
        self.answer_start = len(prompt.split())
        self.length = self.answer_start + len(answer.split())
        self._chunk, self._ahead = -1, np.zeros((0, 0, 0), np.int32)

    def batch(self, step: int) -> np.ndarray:
        """(B, L) the examples of a step."""
        # Chunks begin at fixed steps: a run that goes on in the middle of one sees the same rows.
        chunk, at = divmod(step, AHEAD)
        if chunk != self._chunk:
            rows = self._rows("train", AHEAD * self.count, (self.seed, chunk))
            self._chunk, self._ahead = chunk, rows.reshape(AHEAD, self.count, self.length)
        return self._ahead[at]

    def held_out(self) -> np.ndarray:
        """(N, L) problems for validation, always the same."""
        return self._rows("development", HELD_OUT, (self.seed, 0))

    def _rows(self, split: str, count: int, seed: Sequence[int]) -> np.ndarray:
        pairs = self.source.pairs(split, count, seed)
        rows = [self._row(prompt.split(), answer.split()) for prompt, answer in pairs]
        return np.asarray(rows, np.int32)

    def _row(self, prompt: list[str], answer: list[str]) -> list[int]:
        sizes, mine = (len(prompt), len(answer)), (self.answer_start, self.length)
        rule = f"prompts must have {mine[0]} words and answers {mine[1] - mine[0]}"
        require((sizes[0], sum(sizes)) == mine, rule, sizes, "make all of one length")
        unknown = [word for word in (*prompt, *answer) if word not in self.ids]
        require(not unknown, "problems must be made of `words`", unknown, "add them")
        return [self.ids[word] for word in (*prompt, *answer)]


def make_source(data: PairsData) -> Pairs:
    """What makes the problems that a recipe names."""
    place = SOURCES.get(data.problems, data.problems)
    module, _, name = place.partition(":")
    rule = f"data.problems must be one of {', '.join(SOURCES)}, or 'package.module:Class'"
    require(name, rule, data.problems, "check the recipe")
    try:
        return getattr(importlib.import_module(module), name)(**data.options)
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"{rule}, got {error}; check the recipe.") from error


def word_tokenizer(data: PairsData) -> Any:
    """A token for each word: the first token ends a text, the last is noise."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [END, *make_source(data).words, MASK]
    rule = "words must differ, and hold no space"
    right = len(set(words)) == len(words) and all(len(word.split()) == 1 for word in words)
    require(right, rule, "others", "check `words`")
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([END, MASK])
    return tokenizer
