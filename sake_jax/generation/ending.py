"""Where a row's text ends: end tokens and stop strings."""

import bisect
from collections.abc import Callable, Iterable, Sequence

from sake_jax.checks import require, whole
from sake_jax.models import LanguageModel
from sake_jax.samplers.stop import EndTokens, end_tokens

Stops = Sequence[str | int]


def checked(lm: LanguageModel, stop: Stops) -> list[str | int]:
    """Token ids and strings that may end a row, or an error."""
    rule = "stop must be a list of token ids and strings"
    listed = isinstance(stop, Iterable) and not isinstance(stop, str | bytes)
    require(listed, rule, stop, "put it in a list, or leave it out")
    stop = list(stop)
    size = lm.config.network.V
    for part in stop:
        if isinstance(part, str):
            require(part, "a stop string must not be empty", part, "leave it out")
        else:
            whole("a stop token", part, at_least=0, at_most=size - 1)
    return [part if isinstance(part, str) else int(part) for part in stop]


class TextEnd:
    """Where a row's text ends."""

    def __init__(self, lm: LanguageModel, stop: Stops, stop_at_end: bool, infill: bool):
        self.decode = _decoder(lm)
        self.infill = infill
        self.strings = [part for part in stop if isinstance(part, str)]
        self.ids = {part for part in stop if not isinstance(part, str)}
        rule, remedy = "stop strings need the model's tokenizer", "stop at token ids"
        require(not self.strings or self.decode, rule, self.strings, remedy)
        # Special tokens never show up in decoded text.
        known = lm.tokenizer.get_added_vocab() if self.strings else {}
        self.ids |= {known[part] for part in self.strings if part in known}
        self.strings = [part for part in self.strings if part not in known]
        if stop_at_end and not infill and lm.config.eos_id is not None:
            self.ids.add(lm.config.eos_id)
        self.stop: EndTokens | None = end_tokens(sorted(self.ids)) if self.ids else None

    def text(self, tokens: list[int]) -> str | None:
        """The text of tokens, cut before a stop string."""
        if self.decode is None:
            return None
        text = self.decode(tokens)
        return text[: min([text.find(s) for s in self.strings if s in text], default=len(text))]

    def count(self, tokens: list[int]) -> tuple[int, str]:
        """How many of these tokens are text, and why no more."""
        at = next((at for at, token in enumerate(tokens) if token in self.ids), len(tokens))
        if self.decode is not None and self.has_stop_string(tokens[:at]):
            decode, wanted = self.decode, len(self.text(tokens[:at]) or "")
            whole = lambda count: len(decode(tokens[:count])) >= wanted  # noqa: E731
            return bisect.bisect_left(range(at), True, key=whole), "string"
        return at, "token" if at < len(tokens) else "length"

    def has_stop_string(self, tokens: list[int]) -> bool:
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
