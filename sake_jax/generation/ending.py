"""Where a row's text ends: end tokens and stop strings."""

import bisect
from collections.abc import Callable

from sake_jax.checks import require
from sake_jax.models import LanguageModel
from sake_jax.samplers.stop import EndTokens, end_tokens


class Ending:
    """Where a row's text ends."""

    def __init__(self, lm: LanguageModel, ids: list[int], strings: list[str], infill: bool):
        self.stop: EndTokens | None = end_tokens(ids) if ids else None
        self.ids, self.strings, self.infill = set(ids), strings, infill
        self.decode = _decoder(lm)
        rule, remedy = "stop strings need the model's tokenizer", "stop at token ids"
        require(not strings or self.decode, rule, strings, remedy)

    def text(self, tokens: list[int]) -> str | None:
        """The text of tokens, cut before a stop string."""
        if self.decode is None:
            return None
        text = self.decode(tokens)
        return text[: min([text.find(s) for s in self.strings if s in text], default=len(text))]

    def count(self, tokens: list[int]) -> tuple[int, str]:
        """How many of these tokens are text, and why no more."""
        at = next((at for at, token in enumerate(tokens) if token in self.ids), len(tokens))
        if self.found(tokens[:at]):
            holds = lambda count: self.found(tokens[:count])  # noqa: E731
            return bisect.bisect_left(range(at), True, key=holds), "string"
        return at, "token" if at < len(tokens) else "length"

    def found(self, tokens: list[int]) -> bool:
        """Whether the text of these tokens holds a stop string."""
        if self.decode is None or not self.strings:
            return False
        text = self.decode(tokens)
        return any(string in text for string in self.strings)


def _decoder(lm: LanguageModel) -> Callable[[list[int]], str] | None:
    try:
        tokenizer = lm.tokenizer
    except ValueError:  # token ids work without one
        return None
    return lambda ids: tokenizer.decode(ids, skip_special_tokens=True)
