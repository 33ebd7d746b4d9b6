"""What the library has to know about a family of checkpoints: one `Family` in one file each."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

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
    left_out: tuple[str, ...] = ()
    """Patterns of tensors of parts that are not read, such as a tower for images."""
    recognises: Callable[[Mapping[str, Any]], bool] = lambda config: False
    """Whether a config.json that names no architecture is this family's."""
    published: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """config.json of models on the hub, as far as it decides something, by the last part of their
    names in lower case: they are planned for by their shapes alone."""
    # Facts that `model` writes into every `ModelConfig`; see there.
    sampler: str = "masked"
    order: str = "confidence"
    predicts_mask: bool = True
    positions: str = "columns"
    tokenizer_class: str | None = None

    def model(self, network: NetworkConfig, **ids: int | None) -> ModelConfig:
        """A model of this family: its network, its special tokens, and the family's facts."""
        return ModelConfig(
            family=self.name,
            network=network,
            sampler=self.sampler,
            order=self.order,
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
