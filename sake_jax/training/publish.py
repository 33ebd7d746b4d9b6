"""A trained model as a folder in its family's layout, tokenizer included."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np

from sake_jax.conversion import families
from sake_jax.conversion.checkpoint import CONFIG
from sake_jax.conversion.exporter import write
from sake_jax.conversion.weights import Held
from sake_jax.models import network
from sake_jax.models.config import DiTConfig, ModelConfig, TransformerConfig
from sake_jax.typing import Params

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def publish(
    config: ModelConfig, params: Params, tokenizer: Any, folder: Path, dtype: str = "float16"
) -> Path:
    """Writes config.json, the weights and the tokenizer. What was there is replaced when all is
    written."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    described = describe(config) | {"torch_dtype": dtype}
    exact = network.exact(config.network)
    leaves = jax.device_get(network.flat(params))
    cast = {
        name: leaf if name in exact else leaf.astype(DTYPES[dtype]) for name, leaf in leaves.items()
    }
    prefix = max(families.family(config.family).prefixes, key=len)
    write(config, Held(cast), prefix, partial)
    (partial / CONFIG).write_text(json.dumps(described, indent=1))
    _write_tokenizer(tokenizer, partial)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder


def describe(config: ModelConfig) -> dict[str, Any]:
    """config.json in the family's words."""
    return {"llada": _llada, "llama": _llama, "mdlm": _dit, "bd3lm": _dit}[config.family](config)


def _llada(config: ModelConfig) -> dict[str, Any]:
    c = config.network
    assert isinstance(c, TransformerConfig)
    return {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "activation_type": "silu",
        "block_type": "llama",
        "layer_norm_type": "rms",
        "d_model": c.D,
        "n_layers": c.N,
        "n_heads": c.H,
        "n_kv_heads": c.K,
        "mlp_hidden_size": c.F,
        "max_sequence_length": c.context,
        "rope": True,
        "rope_theta": c.rope_theta,
        "rms_norm_eps": c.eps,
        "vocab_size": c.V,
        "embedding_size": c.V,
        "weight_tying": c.tied,
        "mask_token_id": config.mask_id,
    } | _special(config)


def _llama(config: ModelConfig) -> dict[str, Any]:
    c = config.network
    assert isinstance(c, TransformerConfig)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": c.D,
        "num_hidden_layers": c.N,
        "num_attention_heads": c.H,
        "num_key_value_heads": c.K,
        "head_dim": c.head_dim,
        "intermediate_size": c.F,
        "max_position_embeddings": c.context,
        "rope_theta": c.rope_theta,
        "rms_norm_eps": c.eps,
        "vocab_size": c.V,
        "tie_word_embeddings": c.tied,
    } | _special(config)


def _special(config: ModelConfig) -> dict[str, Any]:
    ids = {"eos": config.eos_id, "bos": config.bos_id, "pad": config.pad_id}
    return {f"{name}_token_id": at for name, at in ids.items()}


def _dit(config: ModelConfig) -> dict[str, Any]:
    c = config.network
    assert isinstance(c, DiTConfig)
    described = {
        "architectures": [config.family.upper()],
        "model_type": config.family,
        "hidden_dim": c.D,
        "n_blocks": c.N,
        "n_heads": c.H,
        "cond_dim": c.cond_dim,
        "model_length": c.context,
        "time_conditioning": c.time_conditioning,
        "vocab_size": c.V,
    }
    return described | ({"block_size": c.block_size} if config.family == "bd3lm" else {})


def _write_tokenizer(tokenizer: Any, folder: Path) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    end, noise = tokenizer.id_to_token(0), tokenizer.id_to_token(tokenizer.get_vocab_size() - 1)
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "bos_token": end,
        "eos_token": end,
        "pad_token": end,
        "mask_token": noise,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=1))
