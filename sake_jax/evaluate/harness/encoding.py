"""From lm_eval's texts to token ids that fit the model's context."""

from typing import NamedTuple

from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from sake_jax.checks import require
from sake_jax.generation import fit_prompt, prompt_context
from sake_jax.models import LanguageModel

Ids = tuple[int, ...]


class Pair(NamedTuple):
    """A context and its continuation."""

    context: Ids
    answer: Ids


class Encoding:
    """A model's tokenizer, with the special tokens that it puts around texts by itself."""

    def __init__(self, lm: LanguageModel, truncate: bool):
        self.tokenizer, self.truncate = lm.tokenizer, truncate
        network = lm.config.network
        self.context: int = network.context
        self.prompt_context = prompt_context(lm)
        self.start = self.ids("")
        if network.causal and not self.start:
            ids = [i for i in (lm.config.bos_id, lm.config.eos_id) if i is not None]
            rule = "a causal model must have a beginning-of-text or an end-of-text token"
            require(ids, rule, lm.config.family, "set it in config.json")
            self.start = tuple(ids[:1])

    def ids(self, text: str) -> Ids:
        """Of a text; chat templates write the beginning-of-text token themselves."""
        first = self.tokenizer.bos_token
        begun = bool(first) and text.startswith(first)
        return tuple(self.tokenizer(text, add_special_tokens=not begun)["input_ids"])

    def prompt(self, text: str, length: int) -> Ids:
        """Of a prompt that `length` tokens follow."""
        return self._fit(self.ids(text), length, self.prompt_context)

    def pair(self, context: str, continuation: str) -> Pair:
        """Cut as lm_eval cuts them: spaces at the border belong to the continuation."""
        before, whole = self.ids(context.rstrip()), self.ids(context + continuation)
        answer = whole[len(before) :]
        rule = "a continuation must have tokens of its own"
        require(answer, rule, (context[-20:], continuation), "is it empty?")
        return Pair(self._fit(before or self.start, len(answer), self.context), answer)

    def windows(self, text: str) -> list[Pair]:
        """Pairs that hold each token of a text once, each pair as long as the context allows."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        width = self.context - max(1, len(self.start))
        windows = map(make_disjoint_window, get_rolling_token_windows(ids, -1, width, 1))
        pairs = [Pair(tuple(context), tuple(answer)) for context, answer in windows]
        return [Pair(self.start, pair.answer) for pair in pairs[:1]] + pairs[1:]

    def _fit(self, ids: Ids, length: int, context: int | None) -> Ids:
        """The ids that leave room for `length` more; the first ones go if that is allowed."""
        remedy = "lower length or num_fewshot, or give truncate=true in model_args"
        return tuple(fit_prompt(ids, length, context, truncate=self.truncate, remedy=remedy))
