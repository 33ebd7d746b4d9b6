"""A trained model as a folder in its family's layout, tokenizer included."""

import json
import shutil
from pathlib import Path
from typing import Any

from sake_jax.conversion import save
from sake_jax.files import PARTIAL, replace_folder, write_atomically
from sake_jax.models import ModelConfig
from sake_jax.typing import Params


def publish(
    config: ModelConfig, params: Params, tokenizer: Any, folder: Path, dtype: str = "float16"
) -> Path:
    """Writes config.json, the weights and the tokenizer; returns the folder.

    What was there is replaced when all is written: a run that is killed leaves the old model.
    """
    partial = folder.with_name(folder.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    save(config, params, partial, dtype)
    _write_tokenizer(tokenizer, partial)
    replace_folder(partial, folder)
    return folder


def _write_tokenizer(tokenizer: Any, folder: Path) -> None:
    """tokenizer.json, and the special tokens: the first ends texts, the last is the mask."""
    write_atomically(folder / "tokenizer.json", tokenizer.to_str(pretty=True))
    end, noise = tokenizer.id_to_token(0), tokenizer.id_to_token(tokenizer.get_vocab_size() - 1)
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "bos_token": end,
        "eos_token": end,
        "pad_token": end,
        "mask_token": noise,
    }
    write_atomically(folder / "tokenizer_config.json", json.dumps(about, indent=1))
