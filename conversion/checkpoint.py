"""Opens a checkpoint of any kind: its config, and its parameters as lazy `Weights`."""

import dataclasses
import json
import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sake_jax import text
from sake_jax.checks import one_of, require
from sake_jax.conversion import families
from sake_jax.conversion.gguf import GGUF
from sake_jax.conversion.manifest import Manifest
from sake_jax.conversion.quantize import Quantized
from sake_jax.conversion.rules import Rule, expand
from sake_jax.conversion.source import CONFIG, Orbax, Safetensors, Source, read_config
from sake_jax.conversion.weights import Cast, Mapped, Weights
from sake_jax.files import write_atomically
from sake_jax.models import ModelConfig, NetworkConfig, abstract, exact_params, flatten_params

READABLE = ("float32", "bfloat16", "float16", "int8")
SLACK, SMALL = 100, 2**20
"""Tensors that a config may describe beyond twice the stored ones, and sizes that cost nothing: the
comparison of all names and shapes says what is wrong with those."""
STACKED = "blocks."
"""Where the parameters with a leading axis of layers are."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model on disk, nothing of it read yet but names and shapes.

    >>> from sake_jax.conversion import locate, open_checkpoint
    >>> checkpoint = open_checkpoint(locate("tinystories"))
    >>> checkpoint.config.family, checkpoint.manifest is None
    ('llada', True)
    """

    folder: Path
    described: dict[str, Any]
    """config.json as it is."""
    config: ModelConfig
    weights: Weights
    source: Source
    prefix: str
    """What the names of the family's tensors begin with."""
    manifest: Manifest | None
    """None unless we converted it."""


def open_checkpoint(path: Path) -> Checkpoint:
    """A Hugging Face folder, a converted checkpoint, or a GGUF file.

    >>> from sake_jax.conversion import locate, open_checkpoint
    >>> open_checkpoint(locate("tinystories")).weights.leaves["norm.weight"].shape
    (256,)
    """
    rule, remedy = "a checkpoint must be a folder or a .gguf file", "pass the model's folder"
    require(path.is_dir() or path.suffix == text.GGUF, rule, str(path), remedy)
    if Manifest.beside(path):
        return _converted(path)
    gguf = GGUF(path) if path.suffix == text.GGUF else None
    described = gguf.described if gguf else read_config(path)
    family = families.recognise(described)
    config = family.config(described)
    source = gguf or Safetensors(path)
    prefix = family.prefix(source.shapes)
    weights = mapped(config, source, prefix)
    return Checkpoint(path, described, config, weights, source, prefix, None)


def leaves(config: ModelConfig) -> dict[str, jax.ShapeDtypeStruct]:
    """The model's parameters by path."""
    return flatten_params(abstract(config.network))


def mapped(config: ModelConfig, source: Source, prefix: str) -> Mapped:
    """A family's tensors as our parameters, by its rule table."""
    family = families.family(config.family)
    table = family.table(config, prefix)
    require_stored(config.network, count_tensors(config.network, table), source)
    expected = leaves(config)
    ignored = {name for name in source.shapes if _not_read(family, name)}
    heads = (
        {prefix + family.head, family.head} & source.shapes.keys() if config.network.tied else ()
    )
    for head in heads:
        _check_tied(source, head, prefix + family.embedding)
    ignored.update(heads)
    return Mapped(expected, expand(table, expected), source, ignored)


def count_tensors(network: NetworkConfig, table: Sequence[Rule]) -> int:
    """How many tensors a rule table names, at most, without naming them."""
    experts = getattr(network, "experts", 0)

    def along(rule: Rule, name: str) -> int:
        return network.N // rule.every if name == "layer" else experts

    return sum(math.prod(along(rule, name) for name in rule.counted) for rule in table)


def require_stored(network: NetworkConfig, tensors: int, source: Source) -> None:
    """Refuses sizes that the stored tensors cannot have, before anything is made of these sizes.

    A config.json of a kilobyte can ask for a million layers. What is off by little passes: the
    comparison of names and shapes says more about it.

    Args:
      network: as config.json describes it.
      tensors: how many it would have.
      source: what is stored.
    """
    rule = f"config.json must describe about as many tensors as are stored ({len(source.shapes)})"
    remedy = "check the numbers of layers and experts in it"
    require(tensors <= 2 * len(source.shapes) + SLACK, rule, tensors, remedy)
    stored = sum(math.prod(shape) for shape in source.shapes.values())
    widths = {
        "vocabulary": network.V,
        "width": network.D,
        "MLP": network.F,
        "heads": network.H * network.head_dim,
        "condition": getattr(network, "cond_dim", 0),
        "number of classes": network.classes,
    }
    for name, width in widths.items():
        rule = f"the {name} in config.json must be a size of the tensors, {stored:,} numbers in all"
        require(width <= max(stored, SMALL), rule, width, "check the sizes in it")


def _check_tied(source: Source, head: str, table: str) -> None:
    """Some checkpoints store a tied head too: its first and last rows must be the table's."""
    shape = source.shapes[head]
    same = shape == source.shapes.get(table) and all(
        np.array_equal(source.read(head, rows), source.read(table, rows))
        for rows in ((slice(0, 64),), (slice(max(0, shape[0] - 64), shape[0]),))
    )
    rule, remedy = f"{head} must equal {table}: the config ties them", "untie them in config.json"
    require(same, rule, "other values", remedy)


def _not_read(family: families.Family, name: str) -> bool:
    return any(
        re.fullmatch(re.escape(prefix) + pattern, name)
        for prefix in family.prefixes
        for pattern in family.derived + family.left_out
    )


def _converted(folder: Path) -> Checkpoint:
    manifest = Manifest.read(folder)
    described = read_config(folder)
    config = families.recognise(described).config(described)
    if manifest.quantized:
        config = int8_config(config)
    source = Orbax(folder, manifest.units)
    require_stored(config.network, config.network.N, source)
    expected = leaves(config)
    weights = Mapped(expected, expand(map(unit_rule, expected), expected), source)
    return Checkpoint(folder, described, config, weights, source, manifest.prefix, manifest)


def unit_rule(path: str) -> Rule:
    """Converted checkpoints keep layers apart: a stacked parameter may not fit in memory."""
    inside = path.removeprefix(STACKED)
    return Rule(path if inside == path else f"{STACKED}{{layer}}.{inside}", path)


def int8_config(config: ModelConfig) -> ModelConfig:
    """The same model with int8 kernels.

    >>> from sake_jax.conversion import int8_config, model_config
    >>> int8_config(model_config("llada-8b")).network.quantized
    True
    """
    network = dataclasses.replace(config.network, quantized=True)
    return dataclasses.replace(config, network=network)


def in_dtype(checkpoint: Checkpoint, dtype: Any) -> Checkpoint:
    """The same checkpoint, read in another dtype; "int8" quantises the kernels.

    >>> from sake_jax.conversion import in_dtype, locate, open_checkpoint
    >>> short = in_dtype(open_checkpoint(locate("tinystories")), "bfloat16")
    >>> short.weights.leaves["norm.weight"].dtype.name
    'bfloat16'
    """
    if dtype is None:
        return checkpoint
    name = dtype if isinstance(dtype, str) else jnp.dtype(dtype).name
    kind = jnp.dtype(one_of("dtype", name, READABLE))
    if kind != jnp.int8:
        weights = Cast(checkpoint.weights, kind, exact_params(checkpoint.config.network))
        return dataclasses.replace(checkpoint, weights=weights)
    rule, remedy = "int8 is made from float weights", "leave dtype out"
    require(not checkpoint.config.network.quantized, rule, "int8 weights", remedy)
    config = int8_config(checkpoint.config)
    weights = Quantized(checkpoint.weights, leaves(config))
    return dataclasses.replace(checkpoint, config=config, weights=weights)


def copy_description(checkpoint: Checkpoint, folder: Path) -> None:
    """Tokenizer, chat template and, last, config: a folder without one is no model."""
    if checkpoint.folder.suffix == text.GGUF:
        try:
            text.tokenizer(checkpoint.folder).save_pretrained(folder)
        except ValueError as error:
            warnings.warn(f"written without a tokenizer: {error}", stacklevel=3)
        write_atomically(folder / CONFIG, json.dumps(checkpoint.described, indent=2))
        return
    for name in (*text.FILES, CONFIG):
        if (checkpoint.folder / name).is_file():
            write_atomically(folder / name, (checkpoint.folder / name).read_bytes())
