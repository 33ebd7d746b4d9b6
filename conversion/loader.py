"""Loads a model from a folder or by its name on the hub, whole or spread over a mesh."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from sake_jax.checks import one_of, require
from sake_jax.conversion.catalog import locate
from sake_jax.conversion.checkpoint import Checkpoint, in_dtype, open_checkpoint
from sake_jax.conversion.source import Index
from sake_jax.conversion.weights import Cast, Weights, extent, full
from sake_jax.models import LanguageModel, ModelConfig, TransformerConfig, fit, network
from sake_jax.sharding import (
    broadcast_from_leader,
    mesh_sizes,
    padded,
    several_processes,
    sharding,
)
from sake_jax.sharding import mesh as make_mesh

COMPUTED = ("float32", "bfloat16", "int8")
"""What models compute in."""


def load(
    path_or_name: str | Path,
    mesh: Mesh | str | None = None,
    dtype: Any = None,
    attention: str = "plain",
) -> LanguageModel:
    """A model, ready to sample from or to score with.

    Each process reads only the slices of the files that its devices hold, each of them once.

    >>> import sake_jax as sj
    >>> sj.load("tinystories").config.family
    'llada'

    Args:
      path_or_name: "tinystories", the model in the box; a Hugging Face folder, a checkpoint
        converted by `sake-jax convert`, or a GGUF file; or a name on the hub such as
        "GSAI-ML/LLaDA-8B-Instruct" when online.
      mesh: from `sake_jax.mesh`, or its sizes in words such as "fsdp=4,tensor=2", or "auto" for
        one over all devices, or in a run of several
        processes over the devices of each if the model fits these (see
        `sake_jax.models.choose_mesh`); the default device by default. Its `tensor` axis must divide
        the query heads. Fewer key heads are computed on every device, and the vocabulary's tables
        get rows of zeros at their end, so that they divide.
      dtype: "float32", "bfloat16", or "int8" for quantised kernels; by default as stored.
        float16 is for files only: such weights are loaded as float32.
      attention: "plain", or "splash" for JAX's kernel on TPUs: for canvases of some thousand
        columns, see the recipe for pods. Elsewhere it is as "plain".
    """
    _check_dtype(dtype)
    checkpoint = widened(in_dtype(open_checkpoint(locate(path_or_name)), dtype))
    checkpoint = dataclasses.replace(
        checkpoint, config=with_attention(checkpoint.config, attention)
    )
    if isinstance(mesh, str):
        mesh = make_mesh(**(fitting(checkpoint) if mesh == "auto" else mesh_sizes(mesh)))
    return LanguageModel(checkpoint.config, parameters(checkpoint, mesh), checkpoint.folder)


def _check_dtype(dtype: Any) -> None:
    """Refuses what models do not compute in, by naming what they do."""
    if dtype is None:
        return
    name = dtype if isinstance(dtype, str) else jnp.dtype(dtype).name
    rule, remedy = "models do not compute in float16", "load as float32 or bfloat16"
    require(name != "float16", rule, dtype, remedy)
    one_of("dtype", name, COMPUTED)


def with_attention(config: ModelConfig, attention: str) -> ModelConfig:
    """The same model with another attention, "plain" or "splash"; see `load`.

    >>> from sake_jax.conversion import model_config, with_attention
    >>> with_attention(model_config("llada-8b"), "splash").network.attention
    'splash'
    """
    if attention == config.network.attention:
        return config
    rule, remedy = "attention is a choice of transformers", "leave it out for the DiT families"
    require(isinstance(config.network, TransformerConfig), rule, config.family, remedy)
    network = dataclasses.replace(config.network, attention=attention)
    return dataclasses.replace(config, network=network)


def fitting(checkpoint: Checkpoint) -> dict[str, int]:
    """Sizes of a mesh: over each process's own devices if these can hold the model, or over all."""
    options = {
        "leaves": checkpoint.weights.leaves,
        "memory": broadcast_from_leader(fit.device_memory),
    }
    if several_processes():
        try:
            return fit.choose_mesh(checkpoint.config.network, jax.local_device_count(), **options)
        except ValueError:  # too large for one process
            pass
    return fit.choose_mesh(checkpoint.config.network, **options)


def widened(checkpoint: Checkpoint) -> Checkpoint:
    """float16 as float32: its range is too small for activations, and CPUs do not multiply it."""
    kinds = {path: leaf.dtype for path, leaf in checkpoint.weights.leaves.items()}
    others = [path for path, kind in kinds.items() if kind != jnp.float16]
    if len(others) == len(kinds):
        return checkpoint
    return dataclasses.replace(checkpoint, weights=Cast(checkpoint.weights, jnp.float32, others))


def parameters(checkpoint: Checkpoint, mesh: Mesh | None = None) -> Any:
    """A checkpoint's parameters on their devices, one after the other."""
    config, weights = checkpoint.config.network, checkpoint.weights
    axes, sizes = network.param_axes(config), dict(mesh.shape) if mesh else {}
    fit.require_heads(config, sizes)

    def array(path: str, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        if mesh is None:  # on the default device, but free to move
            return jnp.asarray(weights.read(path, ()))
        shape = padded(leaf.shape, axes[path], sizes)
        placed = sharding(mesh, shape, axes[path])
        local: list[Any] = list(placed.addressable_devices_indices_map(shape).values())
        read = reader(weights, path, shape, local)
        return jax.make_array_from_callback(shape, placed, read, dtype=leaf.dtype)

    return network.nest_params({path: array(path, leaf) for path, leaf in weights.leaves.items()})


def reader(
    weights: Weights, path: str, shape: tuple[int, ...], parts: Sequence[Index] = ()
) -> Callable[[Any], np.ndarray]:
    """Reads slices of a parameter, each once, with zeros for what this shape has beyond its end.

    All of `parts` at once where they fill a box: chunks of files may be larger than each of them.
    """
    leaf, box, seen = weights.leaves[path], _box(shape, parts), {}

    def padded_with_zeros(index: Index) -> np.ndarray:
        inside = full(leaf.shape, index)
        stored, wanted = extent(inside), extent(index)
        read = weights.read(path, inside) if 0 not in stored else np.zeros(stored, leaf.dtype)
        beyond = [(0, all_ - some) for all_, some in zip(wanted, stored, strict=True)]
        return read if wanted == stored else np.pad(read, beyond)

    def read(index: Index) -> np.ndarray:
        index = full(shape, index)
        outer = index if box is None else box
        if str(outer) not in seen:  # slices cannot be keys; devices often ask for the same one
            seen[str(outer)] = padded_with_zeros(outer)
        bounds = zip(index, outer, strict=True)
        own = tuple(slice(i.start - o.start, i.stop - o.start) for i, o in bounds)
        return seen[str(outer)][(*own, ...)]  # an array also of a scalar

    return read


def _box(shape: tuple[int, ...], parts: Sequence[Index]) -> Index | None:
    """The slice that these fill together; None where they leave some of it out."""
    distinct = {str(full(shape, part)): full(shape, part) for part in parts}.values()
    if not distinct:
        return None
    sides = list(zip(*distinct, strict=True))
    box = tuple(slice(min(s.start for s in side), max(s.stop for s in side)) for side in sides)
    filled = sum(math.prod(extent(part)) for part in distinct)
    return box if filled == math.prod(extent(box)) else None
