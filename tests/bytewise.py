"""A tiny model whose tokens are bytes."""

import json
import shutil
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

import sake_jax as sj
from conftest import GOLDENS

CHAT = "{{ bos_token }}{% for turn in messages %}<{{ turn.role }}>{{ turn.content }}{% endfor %}"


def byte_llada(folder: Path) -> sj.LanguageModel:
    """The golden LLaDA checkpoint; its tokenizer begins texts with token 257, and chats too."""
    folder = folder / "llada"
    shutil.copytree(GOLDENS / "llada", folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: at for at, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = [AddedToken(f"<{at}>", special=True) for at in range(256, 288)]
    tokenizer.add_special_tokens(names)
    first = ("<257>", 257)
    tokenizer.post_processor = processors.TemplateProcessing("<257> $A", special_tokens=[first])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"eos_token": "<256>", "bos_token": "<257>", "chat_template": CHAT}
    about |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return sj.load(folder)
