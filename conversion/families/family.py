"""What the library has to know about a family of checkpoints: one `Family` in one file each."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sake_jax.checks import require
from sake_jax.conversion.rules import Rule
from sake_jax.models import ModelConfig, NetworkConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """How a family's config.json reads, its rule table, and the facts all its models share.

    >>> from sake_jax.conversion import family
    >>> family("mdlm").sampler, family("mdlm").predicts_mask
    ('ancestral', False)
    """

    name: str
    architectures: tuple[str, ...]
    """What `architectures` in config.json may say; `model_type` is not unique."""
    config: Callable[[Mapping[str, Any]], ModelConfig]
    """Our config from a config.json."""
    describe: Callable[[ModelConfig], dict[str, Any]]
    """The inverse: what config.json says about a model, for those that are written."""
    rules: Callable[[ModelConfig], list[Rule]]
    """Which tensor of a checkpoint becomes which parameter."""
    prefixes: tuple[str, ...] = ("",)
    """What the names of a checkpoint may begin with, before those of the rules."""
    embedding: str = "model.embed_tokens.weight"
    head: str = "lm_head.weight"
    """Names of the two tables; a checkpoint may store a tied head or not."""
    derived: tuple[str, ...] = ()
    """Patterns of tensors that old checkpoints store though they follow from the config."""
    recognises: Callable[[Mapping[str, Any]], bool] = lambda config: False
    """Whether a config.json that names no architecture is this family's."""
    published: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """config.json of models on the hub, as far as it decides something, by the last part of their
    names in lower case: they are planned for by their shapes alone."""
    # Facts that `model` writes into every `ModelConfig`; see there.
    sampler: str = "masked"
    predicts_mask: bool = True
    positions: str = "columns"
    tokenizer_class: str | None = None

    def model(self, network: NetworkConfig, **ids: int | None) -> ModelConfig:
        """A model of this family: its network, its special tokens, and the family's facts."""
        return ModelConfig(
            family=self.name,
            network=network,
            sampler=self.sampler,
            predicts_mask=self.predicts_mask,
            positions=self.positions,
            tokenizer_class=self.tokenizer_class,
            **ids,
        )

    def prefix(self, names: Iterable[str]) -> str:
        """The longest of the family's prefixes that one of these names has."""
        names = list(names)
        used = (p for p in self.prefixes if any(name.startswith(p) for name in names))
        return max(used, key=len, default="")

    def table(self, config: ModelConfig, prefix: str) -> list[Rule]:
        """The rule table for names that begin with this prefix."""
        return [
            dataclasses.replace(rule, source=prefix + rule.source) for rule in self.rules(config)
        ]


def expect(config: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """Refuses a checkpoint whose config asks for what the network does not compute.

    Keys that are absent pass; several values are given as a tuple.
    """
    for key, value in fixed.items():
        allowed = value if isinstance(value, tuple) else (value,)
        if key in config:
            rule = f"{key} in config.json must be {' or '.join(map(repr, allowed))}"
            remedy = "this variant of the family is not supported"
            require(config[key] in allowed, rule, config[key], remedy)


def value(config: Mapping[str, Any], *keys: str) -> Any:
    """The first of these keys that config.json has."""
    for key in keys:
        if config.get(key) is not None:
            return config[key]
    rule = f"config.json must have {' or '.join(map(repr, keys))}"
    raise ValueError(f"{rule}, got {sorted(config)}; the file may be another model's.")


def first(ids: Any) -> int | None:
    """Some checkpoints name several end tokens; the first is the one that counts here."""
    return ids[0] if isinstance(ids, list) else ids


def tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """The special tokens that configs name; ids outside the vocabulary stand for none."""
    V = value(config, "embedding_size", "vocab_size")
    named = {ours: first(config.get(f"{ours}_token_id")) for ours in ("bos", "eos", "pad")}
    inside = {f"{ours}_id": at for ours, at in named.items() if at is not None and 0 <= at < V}
    return dict.fromkeys(("bos_id", "eos_id", "pad_id")) | inside


def describe_tokens(config: ModelConfig) -> dict[str, Any]:
    """The inverse of `tokens`, with the mask token where there is one."""
    ids = {"eos": config.eos_id, "bos": config.bos_id, "pad": config.pad_id}
    ids |= {} if config.mask_id is None else {"mask": config.mask_id}
    return {f"{name}_token_id": at for name, at in ids.items()}
