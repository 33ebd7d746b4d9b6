"""Rule tables: which tensor of a checkpoint becomes which part of which parameter.

A rule is one-to-one. `{layer}` and `{expert}` in its source count along the leading axes of
its target. What is left over on either side is an error that names it.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sake_jax.checks import require

SHOWN = 12
"""Names an error lists before it says how many more there are."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """One line of a family's table."""

    source: str
    """The tensor's name in the checkpoint, perhaps with {layer} and {expert}."""
    target: str
    """The parameter's path."""
    transposed: bool = False
    """Whether the checkpoint stores the last two axes the other way round."""
    first_layer: int = 0
    """The number that the checkpoint gives to the target's first layer."""
    every: int = 1
    """How far apart the numbers of the target's layers are."""

    @property
    def counted(self) -> list[str]:
        """What its source counts: "layer", "expert", in order."""
        return re.findall(r"{(\w+)}", self.source)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One tensor of the checkpoint and where it goes."""

    source: str
    target: str
    index: tuple[int, ...]
    """Its place on the target's leading axes: (), (layer,) or (layer, expert)."""
    shape: tuple[int, ...]
    """What the checkpoint must store."""
    transposed: bool


class MismatchError(ValueError):
    """A checkpoint and a model that do not fit together; the message lists every tensor.

    >>> try:
    ...     check([], leaves={}, stored={"lm_head.weight": (2048, 256)})
    ... except MismatchError as error:
    ...     print(error)
    checkpoint and model do not fit:
      1 in the checkpoint but not in the model:
        lm_head.weight
    """


def expand(rules: Iterable[Rule], leaves: Mapping[str, Any]) -> list[Entry]:
    """All entries of a rule table for parameters of these shapes."""
    entries = []
    for rule in rules:
        rule_text = f"the rule table must name parameters of the model ({rule.source})"
        require(rule.target in leaves, rule_text, rule.target, "mend the table")
        shape = leaves[rule.target].shape
        names = rule.counted
        inner = shape[len(names) :]
        stored = (*inner[:-2], inner[-1], inner[-2]) if rule.transposed else inner
        for index in itertools.product(*map(range, shape[: len(names)])):
            counted = dict(zip(names, index, strict=True))
            layer = rule.first_layer + rule.every * counted.get("layer", 0)
            counted |= {"layer": layer}
            source = rule.source.format(**counted)
            entries.append(Entry(source, rule.target, index, stored, rule.transposed))
    return entries


def check(
    entries: Sequence[Entry],
    leaves: Mapping[str, Any],
    stored: Mapping[str, tuple[int, ...]],
) -> None:
    """Raises `MismatchError` unless tensors and parameters fit one to one, shapes included."""
    wanted = {entry.source: entry for entry in entries}
    problems = []
    problems += _listed("missing from the checkpoint", wanted.keys() - stored.keys())
    problems += _listed("in the checkpoint but not in the model", stored.keys() - wanted.keys())
    filled = {entry.target for entry in entries}
    problems += _listed("parameters that nothing fills", leaves.keys() - filled)
    times = collections.Counter(entry.source for entry in entries)
    problems += _listed("named by two rules", [name for name, n in times.items() if n > 1])
    wrong = [
        f"{name}: expected {entry.shape}, got {stored[name]}{_hint(entry.shape, stored[name])}"
        for name, entry in wanted.items()
        if name in stored and stored[name] != entry.shape
    ]
    problems += _listed("of another shape than config.json says", wrong)
    if problems:
        raise MismatchError("checkpoint and model do not fit:\n" + "\n".join(problems))


def _hint(expected: tuple[int, ...], got: tuple[int, ...]) -> str:
    return " (transposed?)" if expected == got[::-1] else ""


def _listed(what: str, names: Iterable[str]) -> list[str]:
    names = sorted(names)
    if not names:
        return []
    more = [f"    and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return [f"  {len(names)} {what}:", *(f"    {name}" for name in names[:SHOWN]), *more]
