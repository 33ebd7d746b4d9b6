"""The one place that reads values out of a config.json: each has a type, and a range.

A config.json comes from strangers. Every value that a family uses goes through one of these
functions, which give back what they promise or say which entry is wrong.
"""

import math
from collections.abc import Mapping
from typing import Any

from sake_jax.checks import require
from sake_jax.models import ModelConfig, TransformerConfig

Described = Mapping[str, Any]
"""A config.json as it is."""

LARGEST = 2**31 - 1
"""No size or count is larger: arrays are addressed by 32 bits."""
ANOTHER = "the file may be damaged, or another model's"
UNSUPPORTED = "this variant of the family is not supported"


def size(c: Described, *keys: str, default: int | None = None) -> int:
    """A whole number of at least 1, under the first of these keys that config.json has.

    >>> size({"n_layers": 12}, "num_layers", "n_layers")
    12
    """
    key, given = _entry(c, keys, default)
    right = _is_whole(given) and 1 <= given <= LARGEST
    require(right, f"{key} in config.json must be a whole number from 1 on", given, ANOTHER)
    return int(given)


def count(c: Described, key: str, default: int | None = None) -> int:
    """A whole number of at least 0.

    >>> count({"num_shared_experts": 0}, "num_shared_experts")
    0
    """
    key, given = _entry(c, (key,), default)
    right = _is_whole(given) and 0 <= given <= LARGEST
    require(right, f"{key} in config.json must be a whole number from 0 on", given, ANOTHER)
    return int(given)


def positive(c: Described, key: str, default: float | None = None) -> float:
    """A finite number above 0.

    >>> positive({"rope_theta": 500000}, "rope_theta")
    500000.0
    """
    key, given = _entry(c, (key,), default)
    right = _is_number(given) and given > 0
    require(right, f"{key} in config.json must be a number above 0", given, ANOTHER)
    return float(given)


def flag(c: Described, key: str, default: bool | None = None) -> bool:
    """True or False.

    >>> flag({}, "tie_word_embeddings", default=False)
    False
    """
    key, given = _entry(c, (key,), default)
    require(isinstance(given, bool), f"{key} in config.json must be true or false", given, ANOTHER)
    return given


def token(c: Described, key: str, vocabulary: int, default: int | None = None) -> int | None:
    """A token's id, None where config.json has none. Ids outside the vocabulary stand for none.

    Some checkpoints name several end tokens; the first is the one that counts here.

    >>> token({"eos_token_id": [2, 7]}, "eos_token_id", vocabulary=10)
    2
    """
    given = c.get(key)
    given = default if given is None else given
    ids = given if isinstance(given, list) else [] if given is None else [given]
    rule = f"{key} in config.json must be a token's id, a list of ids, or null"
    require(all(map(_is_whole, ids)), rule, given, ANOTHER)
    return ids[0] if ids and 0 <= ids[0] < vocabulary else None


def mask_token(c: Described, vocabulary: int, default: int | None = None) -> int:
    """The id of the mask token, without which a family of masked diffusion cannot be sampled.

    >>> mask_token({"mask_token_id": 5}, vocabulary=10)
    5
    """
    key, given = _entry(c, ("mask_token_id",), default)
    right = _is_whole(given) and 0 <= given < vocabulary
    rule = f"{key} in config.json must be a whole number below the vocabulary's {vocabulary}"
    require(right, rule, given, "set it to the id of the checkpoint's mask token")
    return int(given)


def published_mask(c: Described, vocabulary: int, published: int) -> int | None:
    """The id of the mask token for families whose configs may leave it out: then the one of the
    published models, or None where the vocabulary is not theirs.

    >>> published_mask({}, vocabulary=10, published=156895)
    """
    known = c.get("mask_token_id") is not None or vocabulary > published
    return mask_token(c, vocabulary, default=published) if known else None


def part(c: Described, key: str) -> Described:
    """A config inside the config.

    >>> part({"model": {"n_blocks": 2}}, "model")
    {'n_blocks': 2}
    """
    key, given = _entry(c, (key,), None)
    require(isinstance(given, Mapping), f"{key} in config.json must be an object", given, ANOTHER)
    return given


def choice(c: Described, key: str, choices: tuple[str, ...]) -> str:
    """One of some words.

    >>> choice({"type": "absorb"}, "type", ("absorb", "uniform"))
    'absorb'
    """
    key, given = _entry(c, (key,), None)
    rule = f"{key} in config.json must be {' or '.join(map(repr, choices))}"
    require(isinstance(given, str) and given in choices, rule, given, UNSUPPORTED)
    return given


def special_tokens(c: Described, vocabulary: int) -> dict[str, Any]:
    """The ids of the beginning, end and padding tokens, as `ModelConfig` names them.

    >>> special_tokens({"eos_token_id": 2}, vocabulary=10)
    {'bos_id': None, 'eos_id': 2, 'pad_id': None}
    """
    return {
        f"{ours}_id": token(c, f"{ours}_token_id", vocabulary) for ours in ("bos", "eos", "pad")
    }


def describe_tokens(config: ModelConfig) -> dict[str, Any]:
    """The inverse of `special_tokens`, with the mask token where there is one."""
    ids = {"eos": config.eos_id, "bos": config.bos_id, "pad": config.pad_id}
    ids |= {} if config.mask_id is None else {"mask": config.mask_id}
    return {f"{name}_token_id": at for name, at in ids.items()}


def head_width(width: int, heads: int) -> int:
    """The width of one head, where the heads share the network's width.

    >>> head_width(48, 4)
    12
    """
    rule = f"the {heads} heads in config.json must divide the width of {width}"
    require(width % heads == 0, rule, f"{width} / {heads}", ANOTHER)
    return width // heads


def rotary_dim(c: Described) -> int:
    """How many entries of a head are turned by its position; 0 for all of them.

    >>> rotary_dim({"head_dim": 128, "partial_rotary_factor": 0.5})
    64
    """
    if c.get("head_dim") is not None:
        whole = size(c, "head_dim")
    else:
        whole = head_width(size(c, "hidden_size"), size(c, "num_attention_heads"))
    part = int(whole * positive(c, "partial_rotary_factor", default=1.0))
    rule = "partial_rotary_factor in config.json must leave something of a head to turn"
    require(part > 0, rule, c.get("partial_rotary_factor"), ANOTHER)
    return 0 if part == whole else part


def describe_rotary(c: TransformerConfig) -> float:
    """The inverse of `rotary_dim`: the part of a head that is turned."""
    return (c.rotary_dim or c.head_dim) / c.head_dim


def expect(c: Described, fixed: Mapping[str, Any]) -> None:
    """Refuses a checkpoint whose config asks for what the network does not compute.

    Keys that are absent pass; several values are given as a tuple.
    """
    for key, value in fixed.items():
        allowed = value if isinstance(value, tuple) else (value,)
        if key in c:
            rule = f"{key} in config.json must be {' or '.join(map(repr, allowed))}"
            require(c[key] in allowed, rule, c[key], UNSUPPORTED)


def _entry(c: Described, keys: tuple[str, ...], default: Any) -> tuple[str, Any]:
    """The first of these keys that has a value, and the value; null counts as absent."""
    for key in keys:
        if c.get(key) is not None:
            return key, c[key]
    rule = f"config.json must have {' or '.join(map(repr, keys))}"
    require(default is not None, rule, "no such entry", ANOTHER)
    return keys[0], default


def _is_whole(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _is_number(given: Any) -> bool:
    """Whether it is a finite number; an int may be too large to be a float."""
    plain = _is_whole(given) or isinstance(given, float)
    return plain and -(LARGEST**2) < given < LARGEST**2 and math.isfinite(given)
