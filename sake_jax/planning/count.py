"""What a program computes, reads and sends, counted from its trace: loops by their rounds.

The compiler's own count has the body of a loop once, however often it runs. Only matrix products
count here: they are nearly all of a language model's work, and what stands between them is fused
into them. Each product is held to a roofline of its own, so that a weight that is read for few rows
costs its bytes and one that is read for many its operations. Of experts only those count that some
token goes through, as many as there are on average if all are equally likely.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from sake_jax.chips import Chip
from sake_jax.sharding import RULES, Axes, shard_shape

KEEP = ("convert_element_type", "sharding_constraint", "copy", "optimization_barrier", "slice")
"""What leaves an array's axes where they are."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one chip."""

    flops: float = 0.0
    bytes: float = 0.0
    """Of the operands and results of matrix products."""
    sent: float = 0.0
    """Bytes to other chips: sums of products over a split axis."""
    seconds: float = 0.0
    """The slower of computing and reading, product by product, and then sending."""

    def __add__(self, other: "Cost") -> "Cost":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Cost(*(a + b for a, b in pairs))

    def __mul__(self, times: float) -> "Cost":
        return Cost(*(times * part for part in dataclasses.astuple(self)))


@dataclasses.dataclass(frozen=True)
class CostCounter:
    """Counts for one chip of a mesh with these sizes."""

    chip: Chip
    sizes: Mapping[str, int]
    shares: Sequence[float] | None = None
    """How often each branch of the denoiser's choice of columns is taken; the last one always,
    by default."""
    experts_per_token: int = 1
    """How many experts a token goes through, all of them different."""

    def count(self, program: ClosedJaxpr, marks: Sequence[Axes | None]) -> Cost:
        """Of a program whose arguments have these logical axes, where they are parameters."""
        return self._walk(program.jaxpr, list(marks))

    def _walk(self, jaxpr: Jaxpr, marks: list[Axes | None]) -> Cost:
        known: dict[Var, Axes | None] = dict(zip(jaxpr.invars, marks, strict=True))
        read = lambda atom: None if isinstance(atom, Literal) else known.get(atom)  # noqa: E731
        total = Cost()
        for equation in jaxpr.eqns:
            own = [read(atom) for atom in equation.invars]
            total += self._equation(equation, own)
            for variable in equation.outvars:
                known[variable] = _after(equation, own, variable)
        return total

    def _equation(self, equation: Any, marks: list[Axes | None]) -> Cost:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            return self._product(equation, marks)
        if name == "ragged_dot_general":
            return self._experts(equation, marks)
        if name == "scan":
            body = params["jaxpr"].jaxpr
            # What is scanned over has one axis more than what a round sees of it. JAX's own counts
            # of these arguments have other names in each version.
            pairs = zip(equation.invars, body.invars, strict=True)
            more = [whole.aval.ndim - part.aval.ndim for whole, part in pairs]
            inner = [mark and mark[axes:] for mark, axes in zip(marks, more, strict=True)]
            return self._walk(body, inner) * params["length"]
        if name == "while":
            first = params["cond_nconsts"]
            return self._walk(params["body_jaxpr"].jaxpr, marks[first:])
        if name == "cond":
            return self._choice(params, marks[1:])
        for key in ("jaxpr", "call_jaxpr", "call"):  # the last: with a rule for vmap
            if key in params:
                inner = params[key]
                jaxpr = inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner
                return self._walk(jaxpr, marks[-len(jaxpr.invars) :] if jaxpr.invars else [])
        return Cost()

    def _choice(self, params: Mapping[str, Any], marks: list[Axes | None]) -> Cost:
        branches, platforms = params["branches"], params.get("branches_platforms")
        if platforms:  # what one kind of chip does by a way of its own is counted by everybody's
            branches = [branches[platforms.index(None)]]
        costs = [self._walk(branch.jaxpr, marks) for branch in branches]
        if self.shares is None or len(self.shares) != len(costs):
            return max(costs, key=lambda cost: cost.seconds)
        return sum((c * s for c, s in zip(costs, self.shares, strict=True)), Cost())

    def _product(self, equation: Any, marks: list[Axes | None]) -> Cost:
        (left, right), (out,) = equation.invars, equation.outvars
        contracted = equation.params["dimension_numbers"][0]
        inner = math.prod(left.aval.shape[at] for at in contracted[0])
        sums = 1
        for dims, mark in zip(contracted, marks, strict=True):
            for at in dims:
                sums = max(sums, self._parts(mark[at] if mark else None))
        everywhere = math.prod(self.sizes.values())
        flops = 2 * inner * math.prod(out.aval.shape) / everywhere
        moved = sum(
            self._bytes(atom, mark)
            for atom, mark in ((left, marks[0]), (right, marks[1]), (out, None))
        )
        return self._cost(flops, moved, self._sent(equation, marks, sums))

    def _experts(self, equation: Any, marks: list[Axes | None]) -> Cost:
        """Of rows sorted by expert, each with its own expert's matrix: (R, i), (E, i, o)."""
        rows, kernel, _ = equation.invars
        (out,) = equation.outvars
        mark = marks[1] or (None, None, None)
        everywhere, (experts, inner, _) = math.prod(self.sizes.values()), kernel.aval.shape
        flops = 2 * inner * math.prod(out.aval.shape) / everywhere
        # A part of the batch looks for its own tokens' experts.
        tokens = rows.aval.shape[0] / self.experts_per_token / self.sizes.get("data", 1)
        read = distinct_experts(experts, self.experts_per_token, tokens) / experts
        moved = (_size(rows.aval) + _size(out.aval)) / everywhere
        moved += read * self._bytes(kernel, marks[1])
        whole, own = kernel.aval.shape, shard_shape(kernel.aval.shape, mark, self.sizes)
        apart, widths = whole[0] // own[0], whole[1] // own[1]
        if mark[1] == "mlp":
            # The last product: what a token's experts give is added up, wherever they are.
            parts = apart * widths
            sent = 2 * _size(out.aval) / self.experts_per_token * (parts - 1) / everywhere
        else:  # experts may be split without a word, their widths are brought together
            sent = self._bytes(kernel, marks[1]) * (widths - 1)
        return self._cost(flops, moved, sent)

    def _cost(self, flops: float, moved: float, sent: float) -> Cost:
        slower = max(flops / self.chip.flops, moved / self.chip.bandwidth)
        return Cost(flops, moved, sent, slower + sent / self.chip.link)

    def _sent(self, equation: Any, marks: list[Axes | None], parts: int) -> float:
        """Bytes for a sum over a split axis: of the results, added up, or of the parameter, brought
        together before, whichever is less."""
        everywhere, (out,) = math.prod(self.sizes.values()), equation.outvars
        added = 2 * _size(out.aval) * parts / everywhere
        weights = zip(equation.invars, marks, strict=True)
        brought = [self._bytes(atom, mark) * parts for atom, mark in weights if mark]
        return min([added, *brought]) * (parts - 1) / parts

    def _bytes(self, atom: Any, mark: Axes | None) -> float:
        """A chip's part: of a parameter by its axes, of others an equal one."""
        if mark is None:
            return _size(atom.aval) / math.prod(self.sizes.values())
        part = math.prod(shard_shape(atom.aval.shape, mark, self.sizes))
        return part * atom.aval.dtype.itemsize

    def _parts(self, name: str | None) -> int:
        return self.sizes.get(RULES.get(name or "", ""), 1)


def distinct_experts(experts: int, chosen: int, tokens: float) -> float:
    """How many experts some token goes through, on average, if each of them chooses this many
    different ones and all are equally likely: E (1 - (1 - k/E)^tokens).

    >>> distinct_experts(256, 8, tokens=1), round(distinct_experts(256, 8, tokens=32), 1)
    (8.0, 163.3)
    """
    return experts * (1 - (1 - chosen / experts) ** tokens)


def _size(aval: Any) -> int:
    return math.prod(aval.shape) * aval.dtype.itemsize


def _after(equation: Any, marks: list[Axes | None], variable: Any) -> Axes | None:
    """The logical axes of a result, where it is still a parameter."""
    name, rank = equation.primitive.name, getattr(variable.aval, "ndim", 0)
    mark = marks[0] if marks else None
    if mark is None:
        return None
    if name in KEEP and len(mark) == rank:
        return mark
    if name == "squeeze":
        gone = equation.params["dimensions"]
        return tuple(axis for at, axis in enumerate(mark) if at not in gone)
    if name == "transpose":
        return tuple(mark[at] for at in equation.params["permutation"])
    return None


def trace(function: Any, *arguments: Any) -> ClosedJaxpr:
    """A program's trace, from shapes alone; whole, as for one device, whatever mesh they name."""

    def whole(leaf: Any) -> Any:
        split = isinstance(leaf, jax.ShapeDtypeStruct)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if split else leaf

    return jax.make_jaxpr(function)(*jax.tree.map(whole, arguments))
