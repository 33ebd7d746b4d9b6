"""What a compiled program says of itself: cycles and collectives, loops by their rounds.

The TPU compiler writes an estimate of cycles beside every fused operation of its program's text.
A loop's body stands there once; how often it runs is read from its condition.
"""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
CALLED = re.compile(r"(condition|body|to_apply)=%?([\w.\-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}|(?:true|false)_computation=%?([\w.\-]+)")
CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
LIMIT = re.compile(r"= s32\[\]\S* constant\((\d+)\)")
COLLECTIVE = re.compile(
    r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
ARRAY = re.compile(r"\b(pred|[sufb]+\d+)\[([\d,]*)\]")
SIZES = {"pred": 1, "bf16": 2}


@dataclasses.dataclass
class Part:
    """A computation of the program: what it does itself, and what it calls how often."""

    cycles: float = 0.0
    sent: dict[str, float] = dataclasses.field(default_factory=dict)
    limits: list[int] = dataclasses.field(default_factory=list)
    loops: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """(condition, body)"""
    choices: list[list[str]] = dataclasses.field(default_factory=list)
    calls: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Total:
    """Of a whole run."""

    cycles: float
    sent: dict[str, float]
    """Bytes of collectives' results by kind."""

    def __add__(self, other: "Total") -> "Total":
        kinds = self.sent | other.sent
        sent = {kind: self.sent.get(kind, 0) + other.sent.get(kind, 0) for kind in kinds}
        return Total(self.cycles + other.cycles, sent)

    def __mul__(self, times: float) -> "Total":
        return Total(times * self.cycles, {k: times * v for k, v in self.sent.items()})


def total(text: str, shares: Sequence[float] | None = None) -> Total:
    """Of a compiled program, from its text.

    Args:
      text: as the compiler prints its program.
      shares: how often each branch of a choice with as many branches is taken; of every other
        choice the dearest branch counts.
    """
    parts, entry = _parts(text)
    return _sum(parts, entry, shares)


def rounds(parts: dict[str, Part], condition: str) -> int:
    """How often a loop runs: what its counter is compared with; once if that is not a number."""
    limits = parts[condition].limits if condition in parts else []
    return max(limits, default=1)


def _sum(parts: dict[str, Part], name: str, shares: Sequence[float] | None) -> Total:
    part = parts.get(name)
    if part is None:
        return Total(0.0, {})
    result = Total(part.cycles, part.sent)
    for condition, body in part.loops:
        once = _sum(parts, condition, shares) + _sum(parts, body, shares)
        result += once * rounds(parts, condition)
    for branches in part.choices:
        result += _choice([_sum(parts, branch, shares) for branch in branches], shares)
    for called in part.calls:
        result += _sum(parts, called, shares)
    return result


def _choice(branches: list[Total], shares: Sequence[float] | None) -> Total:
    if shares is None or len(shares) != len(branches):
        return max(branches, key=lambda branch: branch.cycles)
    return sum((b * s for b, s in zip(branches, shares, strict=True)), Total(0.0, {}))


def _parts(text: str) -> tuple[dict[str, Part], str]:
    parts: dict[str, Part] = {}
    entry, own = "", Part()
    for line in text.splitlines():
        header = COMPUTATION.match(line)
        if header:
            own = parts.setdefault(header[1], Part())
            entry = header[1] if line.startswith("ENTRY") else entry
        else:
            _read(line, own)
    return parts, entry


def _read(line: str, own: Part) -> None:
    own.limits += [int(number) for number in LIMIT.findall(line)]
    own.cycles += sum(map(int, CYCLES.findall(line)))
    collective = COLLECTIVE.search(line)
    if collective:
        own.sent[collective[2]] = own.sent.get(collective[2], 0) + size(collective[1])
        return
    called = dict(CALLED.findall(line))
    if " while(" in line:
        own.loops.append((called["condition"], called["body"]))
    elif " conditional(" in line:
        found: list[Any] = BRANCHES.findall(line)
        names = [name for many, one in found for name in (many or one).split(",")]
        own.choices.append([name.strip().lstrip("%") for name in names])
    elif " call(" in line and "to_apply" in called:
        own.calls.append(called["to_apply"])


def size(shapes: str) -> int:
    """Bytes of the arrays in a type.

    >>> size("(bf16[2,8]{1,0}, f32[4])")
    48
    """
    return sum(
        SIZES.get(kind, int(re.sub(r"\D", "", kind) or 8) // 8)
        * math.prod(int(n) for n in dims.split(",") if n)
        for kind, dims in ARRAY.findall(shapes)
    )
