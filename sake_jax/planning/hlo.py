"""What a compiled program says of itself in HLO, the compiler's text: cycles and collectives.

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
class Computation:
    """A computation of the program: what it does itself, and what it calls how often."""

    cycles: float = 0.0
    sent: dict[str, float] = dataclasses.field(default_factory=dict)
    limits: list[int] = dataclasses.field(default_factory=list)
    loops: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """(condition, body)"""
    choices: list[list[str]] = dataclasses.field(default_factory=list)
    calls: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class ProgramCost:
    """What a compiled program, or a part of it, takes."""

    cycles: float
    sent: dict[str, float]
    """Bytes of collectives' results by kind."""

    def __add__(self, other: "ProgramCost") -> "ProgramCost":
        kinds = self.sent | other.sent
        sent = {kind: self.sent.get(kind, 0) + other.sent.get(kind, 0) for kind in kinds}
        return ProgramCost(self.cycles + other.cycles, sent)

    def __mul__(self, times: float) -> "ProgramCost":
        return ProgramCost(times * self.cycles, {k: times * v for k, v in self.sent.items()})


def program_cost(text: str, shares: Sequence[float] | None = None) -> ProgramCost:
    """What a whole run of a compiled program takes, loops by their rounds.

    Args:
      text: as the compiler prints its program.
      shares: how often each branch of a choice with as many branches is taken; of every other
        choice the dearest branch counts.
    """
    computations, entry = _computations(text)
    return _sum(computations, entry, shares)


def loop_rounds(computations: dict[str, Computation], condition: str) -> int:
    """How often a loop runs: what its counter is compared with; once if that is not a number."""
    limits = computations[condition].limits if condition in computations else []
    return max(limits, default=1)


def _sum(
    computations: dict[str, Computation], name: str, shares: Sequence[float] | None
) -> ProgramCost:
    own = computations.get(name)
    if own is None:
        return ProgramCost(0.0, {})
    result = ProgramCost(own.cycles, own.sent)
    for condition, body in own.loops:
        once = _sum(computations, condition, shares) + _sum(computations, body, shares)
        result += once * loop_rounds(computations, condition)
    for branches in own.choices:
        result += _choice([_sum(computations, branch, shares) for branch in branches], shares)
    for called in own.calls:
        result += _sum(computations, called, shares)
    return result


def _choice(branches: list[ProgramCost], shares: Sequence[float] | None) -> ProgramCost:
    if shares is None or len(shares) != len(branches):
        return max(branches, key=lambda branch: branch.cycles)
    return sum((b * s for b, s in zip(branches, shares, strict=True)), ProgramCost(0.0, {}))


def _computations(text: str) -> tuple[dict[str, Computation], str]:
    computations: dict[str, Computation] = {}
    entry, own = "", Computation()
    for line in text.splitlines():
        header = COMPUTATION.match(line)
        if header:
            own = computations.setdefault(header[1], Computation())
            entry = header[1] if line.startswith("ENTRY") else entry
        else:
            _read(line, own)
    return computations, entry


def _read(line: str, own: Computation) -> None:
    own.limits += [int(number) for number in LIMIT.findall(line)]
    own.cycles += sum(map(int, CYCLES.findall(line)))
    collective = COLLECTIVE.search(line)
    if collective:
        own.sent[collective[2]] = own.sent.get(collective[2], 0) + byte_size(collective[1])
        return
    called = dict(CALLED.findall(line))
    if " while(" in line:
        own.loops.append((called["condition"], called["body"]))
    elif " conditional(" in line:
        matches: list[Any] = BRANCHES.findall(line)
        names = [name for many, one in matches for name in (many or one).split(",")]
        own.choices.append([name.strip().lstrip("%") for name in names])
    elif " call(" in line and "to_apply" in called:
        own.calls.append(called["to_apply"])


def byte_size(shapes: str) -> int:
    """Bytes of the arrays in a type.

    >>> byte_size("(bf16[2,8]{1,0}, f32[4])")
    48
    """
    return sum(
        SIZES.get(kind, int(re.sub(r"\D", "", kind) or 8) // 8)
        * math.prod(int(n) for n in dims.split(",") if n)
        for kind, dims in ARRAY.findall(shapes)
    )
