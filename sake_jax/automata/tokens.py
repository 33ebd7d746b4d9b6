"""The bytes that each token of a vocabulary adds to a text."""

import json
import re
from collections.abc import Sequence
from typing import Any

from sake_jax.checks import require

Tokens = Sequence[str | bytes | None]
"""For each token id its text, None for those that are none, such as the mask token."""

BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
"""How SentencePiece writes a token of one byte."""
SPACE = "\u2581"
"""How SentencePiece writes a space."""


def token_bytes(tokenizer: Any) -> list[bytes | None]:
    """What each token adds to a decoded text; None for special tokens, which are left out of it.

    >>> import sake_jax as sj
    >>> found = token_bytes(sj.load("tinystories").tokenizer)
    >>> found[548], found[0], token_bytes(["a", b"b", None])
    (b' dog', None, [b'a', b'b', None])

    Args:
      tokenizer: one of transformers whose decoder is byte-level, as GPT-2's, or SentencePiece's;
        or the texts of the tokens.
    """
    rule = "matches needs the tokenizer of the model"
    require(
        tokenizer is not None, rule, None, "pass lm.tokenizer, or a list with each token's text"
    )
    if isinstance(tokenizer, list | tuple):
        right = all(token is None or isinstance(token, str | bytes) for token in tokenizer)
        require(right, "tokens must be str, bytes or None", tokenizer, "name each token's text")
        return [token.encode() if isinstance(token, str) else token for token in tokenizer]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    remedy = "pass a list with the text of each token"
    rule = "the tokenizer must be a fast one of transformers"
    require(backend is not None, rule, type(tokenizer).__name__, remedy)
    assert backend is not None
    decode = _decoder(json.loads(backend.to_str()).get("decoder") or {}, remedy)
    added = tokenizer.added_tokens_decoder
    special = {at for at, token in added.items() if token.special} | set(tokenizer.all_special_ids)
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    found: list[bytes | None] = []
    for at, name in enumerate(names):
        plain = at in added and at not in special  # an added token stands for its own name
        if name is None or at in special:
            found.append(None)
        else:
            found.append(name.encode() if plain else decode(name))
    _hold_to_tokenizer(tokenizer, found, remedy)
    return found


def _decoder(described: dict, remedy: str) -> Any:
    kinds = [part.get("type") for part in described.get("decoders", [described])]
    if kinds == ["ByteLevel"]:
        return _byte_level
    rule = "the tokenizer's decoder must be byte-level, or SentencePiece's"
    known = {"Replace", "ByteFallback", "Fuse"}  # but for Strip: which no byte of a token shows
    require(kinds and set(kinds) <= known, rule, kinds, remedy)
    return _sentence_piece


def _byte_characters() -> dict[str, int]:
    """The character that byte-level vocabularies write for each byte: itself if it is printed,
    else one from 256 on."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    shown = {chr(byte): byte for byte in printed}
    return shown | {chr(256 + at): byte for at, byte in enumerate(others)}


CHARACTERS = _byte_characters()


def _byte_level(name: str) -> bytes:
    if all(character in CHARACTERS for character in name):
        return bytes(CHARACTERS[character] for character in name)
    return name.encode()


def _sentence_piece(name: str) -> bytes:
    byte = BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace(SPACE, " ").encode()


def _hold_to_tokenizer(tokenizer: Any, found: list[bytes | None], remedy: str) -> None:
    """Refuses a tokenizer that writes a text in other bytes than we think."""
    text = [at for at, token in enumerate(found) if token]
    for first in range(0, len(text), max(len(text) // 8, 1)):
        some = text[first : first + 32]
        ours = b"".join(found[at] or b"" for at in some).decode(errors="replace")
        theirs = tokenizer.decode(some, skip_special_tokens=True)
        rule = (
            f"the tokenizer must write tokens {some[0]} to {some[-1]} as the bytes they stand for"
        )
        require(ours == theirs, rule, (ours, theirs), remedy)
