"""From an expression to the smallest automaton that reads the bytes of a text in UTF-8."""

from typing import Any, NamedTuple

import numpy as np

from sake_jax.automata.characters import Node, utf8
from sake_jax.automata.expressions import (
    Characters,
    Choice,
    Repeat,
    Sequence,
    parse_expression,
)
from sake_jax.checks import require

MOST = 100_000
"""States, at most: what is larger would take minutes, and gigabytes."""
TOO_LARGE = "an expression's automaton must have at most {:,} states"
SMALLER = "lower the counts in {...}, or use * and +"


class ByteAutomaton(NamedTuple):
    """A deterministic automaton. State 0 is the first; the last row is of the dead state, from
    which nothing is accepted."""

    table: np.ndarray
    """(S + 1, K) the next state, for each of K classes of bytes."""
    byte_class: np.ndarray
    """(256,) the class of each byte."""
    accepts: np.ndarray
    """(S + 1,) whether a text may end here."""

    @property
    def dead(self) -> int:
        return len(self.table) - 1

    def matches(self, text: str | bytes) -> bool:
        """Whether the automaton accepts a whole text."""
        state = 0
        for byte in text.encode() if isinstance(text, str) else text:
            state = int(self.table[state, self.byte_class[byte]])
        return bool(self.accepts[state])


class _Builder:
    """A nondeterministic automaton: arcs that read a byte, and steps that read nothing."""

    def __init__(self) -> None:
        self.arcs: list[list[tuple[int, int, int]]] = []
        self.steps: list[list[int]] = []

    def state(self) -> int:
        self.arcs.append([])
        self.steps.append([])
        return len(self.arcs) - 1

    def add(self, node: Any, start: int) -> int:
        """Reads what the node matches, from a state on; returns where that ends."""
        if isinstance(node, Sequence):
            for part in node.parts:
                start = self.add(part, start)
            return start
        if isinstance(node, Characters):
            end = self.state()
            self._read(utf8(node.ranges), start, end, {})
            return end
        if isinstance(node, Choice):
            end = self.state()
            for part in node.parts:
                begin = self.state()
                self.steps[start].append(begin)
                self.steps[self.add(part, begin)].append(end)
            return end
        assert isinstance(node, Repeat)
        return self._repeat(node, start)

    def _read(self, tree: Node, start: int, end: int, made: dict[int, int]) -> None:
        for first, last, rest in tree:
            target = end
            if rest is not None:
                target = made.get(id(rest), -1)
                if target < 0:
                    target = made[id(rest)] = self.state()
                    self._read(rest, target, end, made)
            self.arcs[start].append((first, last, target))

    def _repeat(self, node: Repeat, start: int) -> int:
        for _ in range(node.least):
            start = self.add(node.part, start)
        end = self.state()
        if node.most is None:
            loop = self.state()
            self.steps[start].append(loop)
            self.steps[self.add(node.part, loop)].append(loop)
            self.steps[loop].append(end)
            return end
        for _ in range(node.most - node.least):
            self.steps[start].append(end)
            begin = self.state()
            self.steps[start].append(begin)
            start = self.add(node.part, begin)
        self.steps[start].append(end)
        return end


def byte_automaton(expression: str) -> ByteAutomaton:
    """The automaton of an expression in Python's dialect; whole texts match, as in `re.fullmatch`.

    >>> found = byte_automaton("(?:na){2,}|é")
    >>> [found.matches(text) for text in ("nana", "na", "é", "")]
    [True, False, True, False]
    """
    tree = parse_expression(expression)
    # Several states of the builder become one: it may have more, within reason.
    require(_size(tree) < 3 * MOST, TOO_LARGE.format(MOST), "many more", SMALLER)
    builder = _Builder()
    start = builder.state()
    final = builder.add(tree, start)
    byte_class = _byte_classes(builder)
    table, accepts = _determinize(builder, start, final, byte_class)
    return _smallest(table, byte_class, accepts)


def _size(node: Any) -> int:
    """About how many states the builder makes for a tree, before it makes them."""
    if isinstance(node, Characters):
        return 1
    if isinstance(node, Repeat):
        return (node.least + 1 if node.most is None else node.most) * _size(node.part) + 1
    return sum(map(_size, node.parts)) + 1


def _byte_classes(builder: _Builder) -> np.ndarray:
    """(256,) bytes between which no arc tells a difference have one class."""
    begins = np.zeros(257, np.int64)
    for arcs in builder.arcs:
        for first, last, _ in arcs:
            begins[first] = begins[last + 1] = 1
    begins[0] = 0
    return np.cumsum(begins)[:256]


def _determinize(
    builder: _Builder, start: int, final: int, byte_class: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Each set of states that can be reached becomes one state; the empty one comes last."""
    reached: dict[int, frozenset[int]] = {}

    def closure(state: int) -> frozenset[int]:
        """What is reached without reading, as far as it reads or accepts itself."""
        if state not in reached:
            seen, todo = {state}, [state]
            while todo:
                for after in builder.steps[todo.pop()]:
                    if after not in seen:
                        seen.add(after)
                        todo.append(after)
            reached[state] = frozenset(s for s in seen if builder.arcs[s] or s == final)
        return reached[state]

    count = int(byte_class[-1]) + 1
    spans = [[(byte_class[a], byte_class[b], to) for a, b, to in arcs] for arcs in builder.arcs]
    first = closure(start)
    ids, todo, rows = {first: 0}, [first], []
    for members in todo:  # grows while we go through it
        targets: list[set[int]] = [set() for _ in range(count)]
        for member in members:
            for low, high, to in spans[member]:
                for byte in range(low, high + 1):
                    targets[byte].add(to)
        row = []
        known: dict[frozenset[int], int] = {}
        for target in map(frozenset, targets):
            if target not in known:
                after = frozenset().union(*map(closure, target)) if target else frozenset()
                if after and after not in ids:
                    require(len(ids) < MOST, TOO_LARGE.format(MOST), "more", SMALLER)
                    ids[after] = len(ids)
                    todo.append(after)
                known[target] = ids[after] if after else -1
            row.append(known[target])
        rows.append(row)
    table = np.asarray([*rows, [-1] * count], np.int32)
    table[table < 0] = len(rows)
    return table, np.asarray([final in members for members in todo] + [False])


def _smallest(table: np.ndarray, byte_class: np.ndarray, accepts: np.ndarray) -> ByteAutomaton:
    """The smallest automaton with the same language (Moore): states that no text tells apart are
    one, and so are bytes that no state tells apart."""
    _, kind = _unique_rows(_lengths(table, accepts))
    while True:
        _, finer = _unique_rows(np.concatenate([kind[:, None], kind[table]], axis=1))
        if finer.max() == kind.max():
            break
        kind = finer
    # The first state is number 0, the dead one, which is last, the largest.
    members = np.zeros(kind.max() + 1, np.int64)
    members[kind[::-1]] = np.arange(len(kind))[::-1]
    dead = kind[-1]
    order = [kind[0]] + [k for k in np.argsort(members) if k not in (kind[0], dead)]
    order = order if dead == kind[0] else [*order, dead]
    number = np.empty(len(members), np.int32)
    number[order] = np.arange(len(order))
    table, accepts = number[kind[table[members[order]]]], accepts[members[order]]
    columns, new_class = _unique_rows(np.ascontiguousarray(table.T))
    return ByteAutomaton(table[:, columns], new_class[byte_class], accepts)


def _lengths(table: np.ndarray, accepts: np.ndarray) -> np.ndarray:
    """(S + 1, 2) the shortest and the longest text that each state accepts, -1 where there is none.

    States that differ here differ: without this, each round of `_smallest` would tell apart one
    state more of a long chain, such as that of `.{2000}`.
    """
    before: list[list[int]] = [[] for _ in table]
    for state, row in enumerate(table.tolist()):
        for after in set(row):
            before[after].append(state)
    found = np.full((len(table), 2), -1, np.int32)
    shortest, longest = found[:, 0], found[:, 1]
    shortest[accepts] = 0
    useful = np.flatnonzero(accepts).tolist()
    for state in useful:  # grows while we go through it
        for earlier in before[state]:
            if shortest[earlier] < 0:
                shortest[earlier] = shortest[state] + 1
                useful.append(earlier)
    left = [len({t for t in row if shortest[t] >= 0}) for row in table.tolist()]
    ends = [state for state in useful if not left[state]]
    for state in ends:  # grows too; what reaches a loop has no longest text, and is not in it
        longest[state] = max([longest[t] + 1 for t in set(table[state].tolist())], default=0)
        for earlier in before[state]:
            left[earlier] -= 1
            if not left[earlier]:
                ends.append(earlier)
    return found


def _unique_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(where each distinct row first stands, which of these each row is)."""
    rows = np.ascontiguousarray(rows)
    whole = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).reshape(-1)
    _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1).astype(np.int32)
