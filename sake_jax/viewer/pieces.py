"""Tokens as the page names them: each text once, and a small number wherever it is used."""

from collections.abc import Iterable
from typing import Any


class Pieces:
    """Small numbers for token ids, in the order in which they are first asked for."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.numbers: dict[int, int] = {}

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
        known = set(getattr(self.tokenizer, "all_special_ids", ()))
        return [number for token, number in self.numbers.items() if token in known]

    @property
    def texts(self) -> list[str]:
        """What each says; its id for a model without a tokenizer."""
        if self.tokenizer is None:
            return [str(token) for token in self.numbers]
        return [self.tokenizer.decode([token]) for token in self.numbers]
