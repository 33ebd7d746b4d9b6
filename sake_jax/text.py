"""Tokenizers. The one module that imports transformers, and only when a tokenizer is needed."""

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sake_jax.checks import require
from sake_jax.gguf_header import AGAIN, check_header

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
)
"""What travels with a checkpoint's weights; most checkpoints have some of these."""

VOCABULARIES = ("tokenizer.json", "vocab.json", "tokenizer.model")
WHOLE = "PreTrainedTokenizerFast"
"""The class that is all in tokenizer.json: it needs no look at the model's config."""

GGUF, PREFIX = ".gguf", "tokenizer."
"""What GGUF files end with, and what the metadata about their tokenizers begins with."""
PARTS = ("ggml.tokens", "ggml.token_type", "ggml.merges")
DIGITS_APART = {"gpt-2": False, "smollm": True}
"""The pre-tokenizers that we know: is every digit a piece of its own?"""
CONTROL, USER_DEFINED = 3, 4
"""Types of tokens in GGUF files that are found before the text is cut into pieces."""
SPECIAL = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
}
"""Names of special tokens in transformers and in GGUF files."""


def tokenizer(folder: Path | None, stand_in: str | None = None) -> Any:
    """The tokenizer saved in a folder or a GGUF file, without running code from it.

    Where it names a class that transformers does not have, `stand_in` is used, if given.
    """
    if folder is not None and folder.suffix == GGUF and folder.is_file():
        return gguf_tokenizer(folder)
    folder = folder or Path("no folder")
    rule = f"the model's folder must hold a tokenizer ({', '.join(VOCABULARIES)})"
    remedy = "put its files there (the model card names them); token ids work without one"
    saved = any((folder / name).is_file() for name in VOCABULARIES)
    require(saved, rule, str(folder), remedy)
    # transformers warns that PyTorch is missing, which we never use.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    import transformers  # takes seconds

    named = _class(folder / "tokenizer_config.json")
    if stand_in is not None and named and not hasattr(transformers, named):
        named = stand_in
    chosen = named if named in (WHOLE, stand_in) else "AutoTokenizer"
    loud = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # it reads the model's config too, and judges it
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            return getattr(transformers, chosen).from_pretrained(
                str(folder), trust_remote_code=False
            )
    except Exception as error:  # the tokenizers package raises nothing more special
        rule = f"{folder} must hold a tokenizer that transformers can read"
        raise ValueError(f"{rule}, got {error}; download its files again.") from error
    finally:
        transformers.logging.set_verbosity(loud)


def encode_text(
    tokenizer: Any, text: str, *, special_tokens: bool = False, around: bool = True
) -> list[int]:
    """The token ids of a text.

    >>> import sake_jax as sj
    >>> tokenizer = sj.load("tinystories").tokenizer
    >>> ids = encode_text(tokenizer, "<|endoftext|>", around=False)
    >>> len(ids) > 1, len(encode_text(tokenizer, "<|mask|>", around=False, special_tokens=True))
    (True, 1)

    Args:
      tokenizer: of transformers.
      text: any text without lone surrogates.
      special_tokens: reads the names of special tokens in the text, such as <|endoftext|>, as these
        tokens. By default they are text like any other: what a user writes ends no prompt.
      around: whether the tokens that the tokenizer itself puts around a text are added.
    """
    return tokenizer(text, add_special_tokens=around, split_special_tokens=not special_tokens)[
        "input_ids"
    ]


class PlainTokenizer:
    """Anything that can `encode` and `decode`, in the words that this library asks a tokenizer in.

    It has no special tokens: what looks like one is text.

    >>> class Letters:
    ...     def encode(self, text):
    ...         return [ord(letter) - 97 for letter in text]
    ...
    ...     def decode(self, ids):
    ...         return "".join(chr(i + 97) for i in ids)
    >>> tokenizer = PlainTokenizer(Letters())
    >>> encode_text(tokenizer, "cab"), tokenizer.decode([2, 0, 1])
    ([2, 0, 1], 'cab')
    """

    chat_template = None
    all_special_tokens: tuple[str, ...] = ()
    all_special_ids: tuple[int, ...] = ()

    def __init__(self, inner: Any):
        self.inner = inner

    def __call__(self, text: Any, **options: Any) -> dict[str, list]:
        if isinstance(text, str):
            return {"input_ids": [int(token) for token in self.inner.encode(text)]}
        return {"input_ids": [self(each)["input_ids"] for each in text]}

    def decode(self, ids: Any, **options: Any) -> str:
        return self.inner.decode([int(token) for token in ids])

    def get_added_vocab(self) -> dict[str, int]:
        return {}


def as_tokenizer(given: Any) -> Any:
    """A tokenizer of transformers as it is; anything else that can encode and decode, adapted; the
    one in a folder.

    >>> import sake_jax as sj
    >>> tokenizer = sj.load("tinystories").tokenizer
    >>> as_tokenizer(tokenizer) is tokenizer
    True
    """
    if isinstance(given, str | Path):
        return tokenizer(Path(given))
    if callable(given) and hasattr(given, "get_added_vocab"):
        return given
    rule, remedy = "a tokenizer must have encode and decode", "pass one, or leave it out"
    right = hasattr(given, "encode") and hasattr(given, "decode")
    require(right, rule, type(given).__name__, remedy)
    return PlainTokenizer(given)


def special_names(tokenizer: Any) -> list[str]:
    """How special tokens are written, the longest first.

    >>> import sake_jax as sj
    >>> "<|mask|>" in special_names(sj.load("tinystories").tokenizer)
    True
    """
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    names = {token.content for token in added if token.special} | {*tokenizer.all_special_tokens}
    return sorted(filter(None, names), key=lambda name: (-len(name), name))


def _class(described: Path) -> str:
    """The class that a tokenizer_config.json names, "" if it names none."""
    if not described.is_file():
        return ""
    try:
        named = json.loads(described.read_text(encoding="utf-8")).get("tokenizer_class") or ""
    except (ValueError, AttributeError, RecursionError) as error:
        rule = f"{described} must be JSON and hold an object"
        raise ValueError(f"{rule}, got {error}; download it again.") from error
    require(
        isinstance(named, str), f"tokenizer_class in {described} must be a name", named, "mend it"
    )
    return named


def gguf_reader(path: Path) -> Any:
    """A GGUF file: its metadata, read, and its tensors, mapped into memory."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        remedy = 'pip install "sake-jax[gguf]"'
        raise ImportError(f"GGUF files are read with the gguf package: {remedy}") from error
    check_header(path)
    try:
        reader = GGUFReader(path)
    except (ValueError, LookupError, OverflowError, TypeError) as error:
        raise ValueError(f"{path} must be a whole GGUF file, got {error}; {AGAIN}.") from error
    native = reader.byte_order == "I"
    require(native, f"{path} must have this machine's byte order", "the other", "convert it again")
    return reader


def gguf_tokenizer(path: Path) -> Any:
    """The byte-level BPE that a GGUF file's metadata describes, its chat template included."""
    fields = gguf_reader(path).fields.items()
    about = {k.removeprefix(PREFIX): f.contents() for k, f in fields if k.startswith(PREFIX)}
    kind, cut = about.get("ggml.model"), about.get("ggml.pre", "none")
    rule = f"a GGUF file's tokenizer must be 'gpt2', cut as one of {', '.join(DIGITS_APART)}"
    remedy = "work with token ids: lm.logits, sj.canvas"
    require(kind == "gpt2" and cut in DIGITS_APART, rule, (kind, cut), remedy)
    rule = f"a GGUF file's tokenizer must have {', '.join(PARTS)}"
    require(about.keys() >= set(PARTS), rule, sorted(about), remedy)
    try:
        return _assembled(about, DIGITS_APART[cut])
    except Exception as error:  # the tokenizers package raises nothing more special
        raise ValueError(f"{path} must hold a whole tokenizer, got {error}; {remedy}.") from error


def _assembled(about: Mapping[str, Any], digits_apart: bool) -> Any:
    from transformers import PreTrainedTokenizerFast  # takes seconds

    tokens = about["ggml.tokens"]
    ids = {ours: about.get(f"ggml.{theirs}_token_id") for ours, theirs in SPECIAL.items()}
    special = {name: tokens[at] for name, at in ids.items() if at is not None}
    return PreTrainedTokenizerFast(
        tokenizer_object=_byte_level(about, digits_apart, special),
        chat_template=about.get("chat_template"),
        clean_up_tokenization_spaces=False,
        **special,
    )


def _byte_level(about: Mapping[str, Any], digits_apart: bool, special: Mapping[str, str]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    tokens = about["ggml.tokens"]
    ids = {token: at for at, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in about["ggml.merges"]]
    made = Tokenizer(models.BPE(vocab=ids, merges=merges))
    digits = [pre_tokenizers.Digits(individual_digits=True)] if digits_apart else []
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([*digits, pieces])
    made.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, about["ggml.token_type"], strict=True):
        if kind in (CONTROL, USER_DEFINED):
            made.add_tokens([AddedToken(token, normalized=False, special=kind == CONTROL)])
    first = [special["bos_token"]] if about.get("ggml.add_bos_token") else []
    last = [special["eos_token"]] if about.get("ggml.add_eos_token") else []
    if first or last:
        made.post_processor = processors.TemplateProcessing(
            single=[*first, "$A", *last], special_tokens=[(t, ids[t]) for t in first + last]
        )
    return made
