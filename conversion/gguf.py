"""Llama models in GGUF files, as llama.cpp writes them, under their Hugging Face names."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from sake_jax.checks import require
from sake_jax.conversion.source import DTYPES, Index
from sake_jax.conversion.weights import full
from sake_jax.gguf_header import AGAIN
from sake_jax.text import gguf_reader

ARCHITECTURE = "llama"
EMBEDDING, OUTPUT, FREQUENCIES = "token_embd.weight", "output.weight", "rope_freqs.weight"
NAMES = {
    EMBEDDING: "model.embed_tokens.weight",
    OUTPUT: "lm_head.weight",
    "output_norm.weight": "model.norm.weight",
}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
HEADS = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
"""Whose rows llama.cpp stores in another order, and how many heads these have."""


class GGUF:
    """A GGUF file's tensors; quantised ones are dequantised to float32 as they are read."""

    def __init__(self, path: Path):
        reader = gguf_reader(path)
        self.files = {path.name: path}
        self.described = config(reader)
        """What config.json would say."""
        tensors = [tensor for tensor in reader.tensors if tensor.name != FREQUENCIES]
        _check_types({tensor.tensor_type for tensor in tensors})
        self._tensors = {translated(tensor.name): tensor for tensor in tensors}
        self.shapes = {name: tuple(t.shape[::-1].tolist()) for name, t in self._tensors.items()}
        self.dtypes = {
            name: np.dtype(DTYPES.get(t.tensor_type.name, np.float32))
            for name, t in self._tensors.items()
        }

    def read(self, name: str, index: Index) -> np.ndarray:
        """Only the blocks that hold the slice are read and dequantised."""
        from gguf import GGML_QUANT_SIZES, dequantize

        tensor, kind = self._tensors[name], self._tensors[name].tensor_type
        *lead, columns = full(self.shapes[name], index)
        rows: list[Any] = lead
        if heads := HEADS.get(name.removesuffix(".weight").rpartition(".")[2]):
            rows = [_rows(self.shapes[name][0], self.described[heads])[lead[0]]]
        block, size = GGML_QUANT_SIZES[kind]
        first, last = columns.start // block, -(-columns.stop // block)
        part = tensor.data.view(np.uint8)[(*rows, slice(first * size, last * size))]
        part = np.array(part)  # out of the mapped file
        plain = kind.name in DTYPES
        values = part.view(self.dtypes[name]) if plain else dequantize(part, kind)
        return values[..., columns.start - first * block : columns.stop - first * block]


def translated(name: str) -> str:
    """A tensor's name in transformers; unknown ones stay and will be in nobody's rule table."""
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if layer and layer[2] in LAYER:
        return f"model.layers.{layer[1]}.{LAYER[layer[2]]}.weight"
    return NAMES.get(name, name)


def config(reader: Any) -> dict[str, Any]:
    """What config.json would say about the model in a GGUF file."""
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def value(key: str, default: Any = None) -> Any:
        return reader.fields[key].contents() if key in reader.fields else default

    def number(key: str, default: Any = None) -> Any:
        given = value(f"{ARCHITECTURE}.{key}", default)
        rule = f"{ARCHITECTURE}.{key} in the GGUF file must be a number"
        require(isinstance(given, int | float), rule, given, "this variant is not supported")
        # GGUF keeps float32, where 1e-05 is 9.999999747378752e-06 to Python.
        return float(str(np.float32(given))) if isinstance(given, float) else given

    rule = f"the GGUF file's architecture must be {ARCHITECTURE!r}"
    remedy = "load other models from their Hugging Face folders"
    kind = value("general.architecture")
    require(kind == ARCHITECTURE, rule, kind, remedy)
    rule, remedy = f"the GGUF file must hold {EMBEDDING}", "a vocabulary alone is no model"
    require(EMBEDDING in tensors, rule, sorted(tensors)[:8], remedy)
    D, H = number("embedding_length"), number("attention.head_count")
    rule, remedy = "a GGUF file's width and heads must be whole numbers from 1 on", AGAIN
    right = isinstance(D, int) and isinstance(H, int) and min(D, H) > 0
    require(right, rule, (D, H), remedy)
    head_dim = number("attention.key_length", D // H)
    rotated = number("rope.dimension_count", head_dim)
    rule = f"all {head_dim} features of a head must be rotated"
    require(rotated == head_dim, rule, rotated, "this variant is not supported")
    described = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": int(tensors[EMBEDDING].shape[-1]),
        "hidden_size": D,
        "intermediate_size": number("feed_forward_length"),
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": H,
        "num_key_value_heads": number("attention.head_count_kv", H),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": number("context_length"),
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon"),
        "rope_theta": number("rope.freq_base", 10_000.0),
        "tie_word_embeddings": OUTPUT not in tensors,
        "bos_token_id": value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": value("tokenizer.ggml.eos_token_id"),
        "pad_token_id": value("tokenizer.ggml.padding_token_id"),
    }
    scaling = value(f"{ARCHITECTURE}.rope.scaling.type", "none")
    if FREQUENCIES in tensors and not np.all(tensors[FREQUENCIES].data == 1):
        scaling = "llama3"  # its factors; the tensor itself is never a parameter
    return described if scaling == "none" else described | {"rope_scaling": {"rope_type": scaling}}


def _rows(count: int, heads: int) -> np.ndarray:
    """Where transformers' rows of queries or keys are: llama.cpp interleaves a head's halves."""
    return np.arange(count).reshape(heads, -1, 2).swapaxes(1, 2).ravel()


def _check_types(kinds: set[Any]) -> None:
    """Refuses types that could not be read later, by decoding a block of zeros."""
    from gguf import GGML_QUANT_SIZES, dequantize

    for kind in kinds:
        try:
            dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
        except NotImplementedError:
            rule = "the GGUF file's tensors must be floats or of a type the gguf package decodes"
            require(kind.name in DTYPES, rule, kind.name, "quantise it another way, such as Q8_0")
