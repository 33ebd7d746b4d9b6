"""From an automaton that reads bytes to one that reads the tokens of a model."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sake_jax.automata.bytewise import ByteAutomaton
from sake_jax.checks import require

END, SKIP, DEAD = 0, 1, 2
"""Classes that every automaton has: what ends a text and fills up the canvas after it; what is no
text, and leaves the state as it is; and text that nothing matches."""
CLASSES = 3
MOST_EDGES = 20_000_000
ROWS, OF_A_ROW = (1, 8, 16, 32, 64, 128), 4
"""How many tokens of one class may be summed at once; and what a row costs besides, in tokens."""


class TokenAutomaton(NamedTuple):
    """An automaton over classes of tokens, as the list of its edges. The first state is 0.

    Tokens of one class lead from each state to the same one. Edges that lead nowhere are left out:
    from each state that is there, a text that matches can be reached. So are those of what is no
    text, which leaves every state as it is.
    """

    classes: np.ndarray
    """(V,) the class of each token."""
    members: np.ndarray
    """(N, R) the tokens that some text may have, in rows of one class; -1 where none is left."""
    member_class: np.ndarray
    """(N,) the class of each such row."""
    first: np.ndarray
    """(S + 1,) where the edges of each state begin, and the last ones end."""
    label: np.ndarray
    """(E,) the class that an edge reads; edges are sorted by the state they come from."""
    target: np.ndarray
    """(E,) where it leads."""
    arc_source: np.ndarray
    """(A,) where an arc comes from: all edges between the same two states are one arc."""
    arc_target: np.ndarray
    """(A,) where it leads."""
    arc_bundle: np.ndarray
    """(A,) the bundle of classes that it reads: arcs that read the same ones share it."""
    part_bundle: np.ndarray
    """(P,) a bundle, ascending, and
    part_label: a class that belongs to it; (P,)."""
    part_label: np.ndarray
    accepts: np.ndarray
    """(S,) whether the canvas may end here."""
    distance: np.ndarray
    """(S,) tokens from each state to an end, at least."""
    count: int
    """C, the number of classes."""
    bundles: int
    """U, the number of bundles."""
    degree: int
    """K, the edges of a state, at most."""
    padded: bool
    """Whether end tokens fill up a canvas."""

    @property
    def shortest(self) -> int:
        """Tokens of the shortest text that matches."""
        return int(self.distance[0])


def token_automaton(
    automaton: ByteAutomaton, tokens: Sequence[bytes | None], ends: Sequence[int] = ()
) -> TokenAutomaton:
    """The automaton whose texts are sequences of tokens; after an end token, only end tokens.

    >>> from sake_jax.automata.bytewise import byte_automaton
    >>> made = token_automaton(byte_automaton("a*b"), [b"a", b"aa", b"b", b"c", None], ends=[4])
    >>> made.classes.tolist(), made.shortest  # a and aa are one class; c is dead
    ([3, 3, 4, 2, 0], 1)
    """
    texts = [at for at, token in enumerate(tokens) if token]
    require(texts, "a vocabulary must have tokens of text", "none", "name each token's text")
    functions, kinds = _token_functions(automaton, [tokens[at] or b"" for at in texts])
    keep = _useful(functions, automaton)
    rule, remedy = "an expression must match some text of the tokens", "check it"
    require(keep[0], rule, "one that matches none", remedy)
    number = np.full(len(keep), -1)
    number[keep] = np.arange(keep.sum())
    functions = number[functions[:, keep]]  # (kinds, S)
    alive, kinds = _merge(functions, kinds)
    classes = np.full(len(tokens), SKIP)
    classes[texts] = np.where(kinds < 0, DEAD, kinds + CLASSES)
    classes[list(ends)] = END
    accepts = automaton.accepts[keep]
    label, source = np.nonzero(alive >= 0)
    rule = f"an expression's automaton must have at most {MOST_EDGES:,} edges over the tokens"
    require(len(label) <= MOST_EDGES, rule, f"{len(label):,}", "lower the counts in {...}")
    target, states = alive[label, source], int(keep.sum())
    edges = np.stack([source, label + CLASSES, target])
    distance = _distances(edges, accepts).astype(np.int32)
    if len(ends):
        finished = np.flatnonzero(accepts)
        to_end = np.stack([finished, np.full_like(finished, END), np.full_like(finished, states)])
        edges = np.concatenate([edges, to_end, [[states], [END], [states]]], axis=1)
        accepts, distance = np.append(accepts, True), np.append(distance, np.int32(0))
    rule, remedy = "a form without end tokens must match a text of one token or more", "pass ends="
    require(edges.size, rule, "only the empty text", remedy)
    edges = edges[:, np.lexsort((edges[1], edges[2], edges[0]))].astype(np.int32)
    first = np.searchsorted(edges[0], np.arange(len(accepts) + 1)).astype(np.int32)
    arcs, parts = _arcs(edges)
    members, member_class = _members(classes)
    return TokenAutomaton(
        classes=classes.astype(np.int32),
        members=members,
        member_class=member_class,
        first=first,
        label=edges[1],
        target=edges[2],
        arc_source=arcs[0],
        arc_target=arcs[1],
        arc_bundle=arcs[2],
        part_bundle=parts[0],
        part_label=parts[1],
        accepts=accepts,
        distance=distance,
        count=CLASSES + len(alive),
        bundles=int(parts[0].max()) + 1,
        degree=int(np.diff(first).max()),
        padded=len(ends) > 0,
    )


def _token_functions(
    automaton: ByteAutomaton, tokens: Sequence[bytes]
) -> tuple[np.ndarray, np.ndarray]:
    """(F, S + 1) the distinct maps from states to states that tokens are, and (V,) which each is.

    A token's map is that of its beginning, then its last byte's: each distinct pair is composed
    once, so that the work goes with the number of distinct maps, not of tokens.
    """
    start = np.arange(len(automaton.table), dtype=np.int32)
    maps, ids = [start], {start.tobytes(): 0}
    after: dict[tuple[int, int], int] = {}
    kinds = np.zeros(len(tokens), np.int64)
    columns = np.ascontiguousarray(automaton.table.T)
    for at, token in enumerate(tokens):
        now = 0
        for byte in automaton.byte_class[np.frombuffer(token, np.uint8)].tolist():
            step = (now, byte)
            if step not in after:
                map_ = columns[byte][maps[now]]
                text = map_.tobytes()
                if text not in ids:
                    ids[text] = len(maps)
                    maps.append(map_)
                after[step] = ids[text]
            now = after[step]
        kinds[at] = now
    used, kinds = np.unique(kinds, return_inverse=True)
    return np.stack([maps[kind] for kind in used]), kinds.reshape(-1)


def _useful(functions: np.ndarray, automaton: ByteAutomaton) -> np.ndarray:
    """(S + 1,) the states that tokens reach from the first, and from which they reach an end."""
    begins, finishes = np.zeros_like(automaton.accepts), automaton.accepts.copy()
    begins[0] = True
    while True:
        more = begins.copy()
        more[functions[:, begins]] = True
        if (more == begins).all():
            break
        begins = more
    while True:
        more = finishes | finishes[functions].any(axis=0)
        if (more == finishes).all():
            return begins & finishes
        finishes = more


def _merge(functions: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The maps that differ where it matters, and lead somewhere; -1 is the kind of the others."""
    unique, inverse = np.unique(functions, axis=0, return_inverse=True)
    leads = (unique >= 0).any(axis=1)
    number = np.where(leads, np.cumsum(leads) - 1, -1)
    return unique[leads], number[inverse.reshape(-1)[kinds]]


def _arcs(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """((3, A) source, target and bundle of each arc, (2, P) bundle and class of each part)."""
    source, label, target = edges
    begins = np.flatnonzero(np.diff(source, prepend=-1) | np.diff(target, prepend=-1))
    bundles: dict[bytes, int] = {}
    bundle = [
        bundles.setdefault(own.tobytes(), len(bundles)) for own in np.split(label, begins[1:])
    ]
    read = [np.frombuffer(text, label.dtype) for text in bundles]
    parts = np.repeat(np.arange(len(read)), [len(own) for own in read]), np.concatenate(read)
    arcs = np.stack([source[begins], target[begins], bundle])
    return arcs.astype(np.int32), np.stack(parts).astype(np.int32)


def _members(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of each class that leads somewhere, in rows of equal length, and their classes."""
    used = np.setdiff1d(classes, (SKIP, DEAD))
    each = [np.flatnonzero(classes == own) for own in used]
    sizes = np.asarray([len(tokens) for tokens in each])
    width = min(ROWS, key=lambda row: int(np.sum(-(-sizes // row))) * (row + OF_A_ROW))
    rows = [
        np.pad(tokens, (0, -len(tokens) % width), constant_values=-1).reshape(-1, width)
        for tokens in each
    ]
    row_class = np.repeat(used, [len(part) for part in rows])
    return np.concatenate(rows).astype(np.int32), row_class.astype(np.int32)


def _distances(edges: np.ndarray, accepts: np.ndarray) -> np.ndarray:
    """(S,) tokens from each state to an end, at least."""
    distance = np.where(accepts, 0, len(accepts) + 1)
    while True:
        nearer = distance.copy()
        np.minimum.at(nearer, edges[0], distance[edges[2]] + 1)
        if (nearer == distance).all():
            return distance
        distance = nearer
