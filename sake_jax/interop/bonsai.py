"""bonsai's LLaDA (jax-ml/bonsai) as a model of ours.

>>> lm = load_model(model, folder="LLaDA-8B-Instruct")  # doctest: +SKIP
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax import Array

from sake_jax.checks import require
from sake_jax.conversion.families.llada import BLOCK, MASK_ID, config
from sake_jax.models import LanguageModel, abstract, flatten_params, nest_params

SIZES = ("d_model", "n_heads", "n_kv_heads", "n_layers", "mlp_hidden_size")
MORE = ("max_sequence_length", "rope_theta", "rms_norm_eps", "vocab_size", "embedding_size")
END_ID = 126081
"""LLaDA-8B's, which bonsai's config does not name."""


def load_model(
    model: Any,
    *,
    folder: str | Path | None = None,
    mask_id: int = MASK_ID,
    end_id: int | None = END_ID,
) -> LanguageModel:
    """bonsai's `LLaDAModel`, with its parameters inside, as `sake_jax.load` gives LLaDA.

    Its arrays are taken over: linear layers are transposed, layers are stacked. Everything that
    works with a loaded LLaDA works with it, caches and meshes included.

    >>> from bonsai.models.llada import params  # doctest: +SKIP
    >>> lm = load_model(params.create_llada_from_pretrained(folder, config))  # doctest: +SKIP

    Args:
      model: the NNX module; its `config` names the sizes.
      folder: with the tokenizer's files, if there is one.
      mask_id: of the mask token.
      end_id: of the token that ends a text, and pads.
    """
    sizes: Any = getattr(model, "config")  # noqa: B009, which no NNX module declares
    described = {name: getattr(sizes, name) for name in (*SIZES, *MORE)}
    described |= {"mask_token_id": mask_id, "eos_token_id": end_id, "pad_token_id": end_id}
    for name in ("include_bias", "include_qkv_bias"):
        described[name] = getattr(sizes, name, False)
    tied = not hasattr(model, "ff_out")
    ours = config(described | {"weight_tying": tied})
    stored = nnx.to_pure_dict(nnx.state(model))
    blocks = [stored["blocks"][at] for at in range(ours.network.N)]
    flat = {"input.rows": stored["wte"]["embedding"], "norm.weight": _tensor(stored["ln_f"])}
    if not tied:
        flat["output.rows"] = _tensor(stored["ff_out"])
    for theirs, target in BLOCK.items():
        name = theirs.removesuffix(".weight")
        flat[f"blocks.{target}"] = jnp.stack([_tensor(block[name]) for block in blocks])
    _check_shapes(flat, flatten_params(abstract(ours.network)))
    return LanguageModel(ours, nest_params(flat), None if folder is None else Path(folder))


def _tensor(layer: Mapping[str, Any]) -> Array:
    """A linear layer's matrix as (out, in), or the weights of a norm."""
    if "kernel" in layer:
        return jnp.asarray(layer["kernel"]).T
    return jnp.asarray(layer["weight"] if "weight" in layer else layer["scale"])


def _check_shapes(given: Mapping[str, Array], wanted: Mapping[str, Any]) -> None:
    for path, leaf in wanted.items():
        rule, remedy = f"{path} must have the shape {leaf.shape}", "is it another model's config?"
        require(path in given and given[path].shape == leaf.shape, rule, given.get(path), remedy)
