"""From a text file to a stream of tokens."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sake_jax.checks import require
from sake_jax.training.recipe import Data

MASK = "<|mask|>"


class Corpus(NamedTuple):
    """Tokens of all documents, one after the other, each with an end token."""

    train: np.ndarray
    validation: np.ndarray
    bytes_per_token: float
    """Of the validation text, end tokens included: what turns nats per token to bits per byte."""


def documents(path: str | Path, data: Data) -> list[str]:
    """The texts of a file, without empty ones."""
    path = Path(path)
    require(path.is_file(), "the corpus must be a text file", str(path), "check the recipe")
    text = path.read_text(encoding="utf-8")
    text = text.lower() if data.lower else text
    found = [part.strip() for part in text.split(data.separator)]
    found = [part for part in found if part]
    require(found, f"{path} must hold text", "nothing", "check the file")
    return found


def learn_tokenizer(data: Data) -> Any:
    """A byte-level BPE of the training text: the first token ends a text, the last is noise."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing

    made = Tokenizer(models.BPE())
    if data.lower:
        made.normalizer = normalizers.Lowercase()
    digits = pre_tokenizers.Digits(individual_digits=True)
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, pieces])
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=data.vocabulary - 1,
        special_tokens=[data.separator],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(documents(data.train, data), trainer)
    made.add_special_tokens([MASK])
    size = made.get_vocab_size()
    rule = f"the training text must be long enough for {data.vocabulary} tokens"
    require(size == data.vocabulary, rule, size, "lower data.vocabulary")
    # An end token comes before every text but the first: a prompt is the beginning of a text.
    first = (data.separator, made.token_to_id(data.separator))
    made.post_processor = TemplateProcessing(single=[first[0], "$A"], special_tokens=[first])
    return made


def encode(tokenizer: Any, texts: list[str], end_id: int) -> np.ndarray:
    """All texts as one stream."""
    found = tokenizer.encode_batch(texts, add_special_tokens=False)
    parts = [[*text.ids, end_id] for text in found]
    return np.concatenate([np.asarray(part, np.int32) for part in parts])


def load(data: Data, tokenizer: Any) -> Corpus:
    """Both files as tokens."""
    end_id = tokenizer.token_to_id(data.separator)
    held = documents(data.validation, data)
    train = encode(tokenizer, documents(data.train, data), end_id)
    validation = encode(tokenizer, held, end_id)
    for name, stream in (("train", train), ("validation", validation)):
        rule = f"data.{name} must have more than data.length = {data.length} tokens"
        require(len(stream) > data.length, rule, len(stream), "use more text")
    # An end token stands for the separator's line, which readers count as one byte.
    size = sum(len(text.encode()) + 1 for text in held)
    return Corpus(train, validation, size / len(validation))
