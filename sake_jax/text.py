"""Tokenizers. The one module that imports transformers, and only when a tokenizer is needed."""

from pathlib import Path
from typing import Any

from sake_jax.checks import require

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


def tokenizer(folder: Path | None) -> Any:
    """The tokenizer saved in a folder, without running code from it."""
    found = folder is not None and any((folder / name).is_file() for name in FILES[:1] + FILES[4:7])
    rule = "the model's folder must hold a tokenizer (tokenizer.json or vocabulary files)"
    remedy = "put its files there; without one, work with token ids: lm.logits, sj.canvas"
    require(found, rule, folder and str(folder), remedy)
    from transformers import AutoTokenizer  # takes seconds

    return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
