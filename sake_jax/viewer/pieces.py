"""Tokens as the page names them: each text once, and a small number wherever it is used."""

from collections.abc import Iterable
from itertools import islice
from typing import Any


class Pieces:
    """Small numbers for token ids, in the order in which they are first asked for."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.numbers: dict[int, int] = {}
        self.told = 0

    def number(self, token: int) -> int:
        """The small number of a token id."""
        return self.numbers.setdefault(int(token), len(self.numbers))

    def of(self, tokens: Iterable[int]) -> list[int]:
        """The small numbers of token ids."""
        return [self.number(token) for token in tokens]

    @property
    def ids(self) -> list[int]:
        """Token ids by their small numbers."""
        return list(self.numbers)

    @property
    def special(self) -> list[int]:
        """Small numbers of tokens that are no text, such as a beginning or an end."""
        return self._special(self.numbers)

    @property
    def texts(self) -> list[str]:
        """What each says; its id for a model without a tokenizer."""
        return self._texts(self.numbers)

    def news(self) -> dict[str, list]:
        """Texts and special numbers of the tokens that were first asked for since the last call,
        for a page that is told piece by piece."""
        new = list(islice(self.numbers, self.told, None))
        self.told = len(self.numbers)
        return {"pieces": self._texts(new), "special": self._special(new)}

    def _special(self, tokens: Iterable[int]) -> list[int]:
        known = set(getattr(self.tokenizer, "all_special_ids", ()))
        return [self.numbers[token] for token in tokens if token in known]

    def _texts(self, tokens: Iterable[int]) -> list[str]:
        if self.tokenizer is None:
            return [str(token) for token in tokens]
        return [self.tokenizer.decode([token]) for token in tokens]
