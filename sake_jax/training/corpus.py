"""From text files to examples: windows of a stream of tokens."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sake_jax.checks import require
from sake_jax.training.recipe import TextData, Training
from sake_jax.typing import Key

MASK = "<|mask|>"
HELD_OUT = 256
"""Validation windows at most."""


class TextExamples:
    """Windows of a stream: the tokens of all documents, each with an end token after it."""

    answer_start = 0
    """Everything is learned."""

    def __init__(self, data: TextData, training: Training, tokenizer: Any):
        self.length, self.count = data.length, training.batch
        self.key = jax.random.key(training.seed)
        end_id = tokenizer.token_to_id(data.separator)
        held_out = documents(data.validation, data)
        train = encode(tokenizer, documents(data.train, data), end_id)
        self.validation = encode(tokenizer, held_out, end_id)
        for name, stream in (("train", train), ("validation", self.validation)):
            rule = f"data.{name} must have more than data.length = {data.length} tokens"
            require(len(stream) > data.length, rule, len(stream), "use more text")
        self.stream = jnp.asarray(train)
        # Of the validation text: what turns nats per token to bits per byte. An end token stands
        # for the separator's line, which readers count as one byte.
        size = sum(len(text.encode()) + 1 for text in held_out)
        self.bytes_per_token: float | None = size / len(self.validation)

    def batch(self, step: int) -> Array:
        """(B, L) the examples of a step, from anywhere in the text."""
        key = jax.random.fold_in(jax.random.fold_in(self.key, step), 0)
        return _windows(self.count, self.length, self.stream, key)

    def held_out(self) -> np.ndarray:
        """(N, L) examples for validation, always the same."""
        there = len(self.validation) // self.length
        windows = self.validation[: there * self.length].reshape(there, self.length)
        # From all over the text: its beginning may be easier than the rest.
        return windows[np.linspace(0, there - 1, min(HELD_OUT, there)).round().astype(int)]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _windows(count: int, length: int, stream: Array, key: Key) -> Array:
    starts = jax.random.randint(key, (count,), 0, stream.size - length + 1)
    return jax.vmap(lambda at: jax.lax.dynamic_slice(stream, (at,), (length,)))(starts)


def documents(path: str | Path, data: TextData) -> list[str]:
    """The texts of a file, without empty ones."""
    path = Path(path)
    remedy = "check the recipe, and the folder of --data"
    require(path.is_file(), "the corpus must be a text file", str(path), remedy)
    text = path.read_text(encoding="utf-8")
    text = text.lower() if data.lower else text
    texts = [part.strip() for part in text.split(data.separator)]
    texts = [part for part in texts if part]
    require(texts, f"{path} must hold text", "nothing", "check the file")
    return texts


def learn_tokenizer(data: TextData) -> Any:
    """A byte-level BPE of the training text: the first token ends a text, the last is noise."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing

    tokenizer = Tokenizer(models.BPE())
    if data.lower:
        tokenizer.normalizer = normalizers.Lowercase()
    digits = pre_tokenizers.Digits(individual_digits=True)
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pieces])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=data.vocabulary - 1,
        special_tokens=[data.separator],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents(data.train, data), trainer)
    tokenizer.add_special_tokens([MASK])
    size = tokenizer.get_vocab_size()
    rule = f"the training text must be long enough for {data.vocabulary} tokens"
    require(size == data.vocabulary, rule, size, "lower data.vocabulary")
    # An end token comes before every text but the first: a prompt is the beginning of a text.
    first = (data.separator, tokenizer.token_to_id(data.separator))
    tokenizer.post_processor = TemplateProcessing(single=[first[0], "$A"], special_tokens=[first])
    return tokenizer


def encode(tokenizer: Any, texts: list[str], end_id: int) -> np.ndarray:
    """All texts as one stream."""
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    return np.concatenate([np.asarray([*text.ids, end_id], np.int32) for text in encoded])
