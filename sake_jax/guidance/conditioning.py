"""Independent columns under an automaton: what each may hold so that the whole text matches.

The columns of a canvas are a hidden Markov chain whose states are the automaton's: one pass from
the left and one from the right (the forward-backward algorithm) give each column its distribution
given that all of them together match, and a pass from the left then draws them together. Everything
is in logarithms: where a text that matches is unlikely, however unlikely, it is still there.

Arrays have the batch last, since arcs are gathered and summed along their first axis. The passes
go over arcs between states, not over edges for each class: what an arc reads is a bundle of
classes, whose weights are summed once for each column.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.automata.tokenwise import DEAD, SKIP
from sake_jax.guidance.select import first_largest
from sake_jax.node import Node
from sake_jax.typing import Leaf, Logits

NONE = -jnp.inf
"""The logarithm of no chance at all."""


class Edges(Node):
    """A `TokenAutomaton` as arrays; see there."""

    classes: Leaf
    members: Leaf
    member_class: Leaf
    first: Leaf
    label: Leaf
    target: Leaf
    arc_source: Leaf
    arc_target: Leaf
    arc_bundle: Leaf
    part_bundle: Leaf
    part_label: Leaf
    accepts: Leaf
    distance: Leaf
    count: int = struct.field(pytree_node=False)
    bundles: int = struct.field(pytree_node=False)
    degree: int = struct.field(pytree_node=False)
    padded: bool = struct.field(pytree_node=False)

    @property
    def states(self) -> int:
        return self.accepts.shape[0]

    def leaving(self, state: Array) -> tuple[Array, Array, Array]:
        """(B, K) which of K edges leave each state, which classes they read, where they lead."""
        place = self.first[state][:, None] + jnp.arange(self.degree)[None, :]
        there = place < self.first[state + 1][:, None]
        place = jnp.minimum(place, self.label.shape[0] - 1)
        return there, self.label[place], self.target[place]


def log_sums(values: Array, segments: Array, count: int) -> Array:
    """(count, B) the logarithm of the sum of exp(values) over the rows of each segment."""
    top = jax.ops.segment_max(values, segments, count)
    base = jnp.where(top > NONE, top, 0)
    return base + jnp.log(jax.ops.segment_sum(jnp.exp(values - base[segments]), segments, count))


def _by_class(values: Logits, edges: Edges, nothing: float, within, across) -> Array:
    """(W, C, B) from (B, W, V): what is made of the tokens of each class. First `within` rows of
    tokens, then `across` the few rows: sums over the vocabulary by index would be far slower."""
    rows, width, _ = values.shape
    taken = values[:, :, jnp.maximum(edges.members, 0)]
    parts = within(jnp.where(edges.members[None, None] < 0, nothing, taken), axis=-1)  # (B, W, N)
    flat = jnp.transpose(parts, (2, 1, 0)).reshape(-1, width * rows)
    combined = across(flat, edges.member_class, edges.count)
    return jnp.transpose(combined.reshape(edges.count, width, rows), (1, 0, 2))


def class_sums(values: Logits, edges: Edges) -> Array:
    """(W, C, B) the log-probability of each class of tokens; -inf for what leads nowhere."""
    top = class_tops(values, edges)
    base = jnp.where(top > NONE, top, 0)
    # Each against the largest of its class: no class is too unlikely to be summed.
    read = (edges.classes != SKIP) & (edges.classes != DEAD)
    shares = jnp.exp(jnp.where(read, values - of_tokens(base, edges), NONE))
    return base + jnp.log(_by_class(shares, edges, 0.0, jnp.sum, jax.ops.segment_sum))


def class_tops(values: Logits, edges: Edges) -> Array:
    """(W, C, B) the largest value of each class of tokens."""
    return _by_class(values, edges, NONE, jnp.max, jax.ops.segment_max)


def of_tokens(by_class: Array, edges: Edges) -> Logits:
    """(B, W, V) for each token what its class has in (W, C, B)."""
    return jnp.transpose(by_class, (2, 0, 1))[:, :, edges.classes]


class Columns(Node):
    """Columns of a canvas as the automaton reads them; (B, N) each."""

    free: Leaf
    """Still to be written."""
    label: Leaf
    """The class of what stands in the others."""

    def part(self, start: Array, width: int) -> "Columns":
        """Some of them."""
        cut = lambda x: jax.lax.dynamic_slice_in_dim(x, start, width, axis=1)  # noqa: E731
        return Columns(cut(self.free), cut(self.label))

    def weights(self, count: int, free: Array) -> Array:
        """(N, C, B) log-weights of what each column may hold: `free` where it is open, (N, C, B)
        without what is no text; else its own class alone."""
        own = self.label.T[:, None, :] == jnp.arange(count)[None, :, None]
        text = jnp.where(jnp.arange(count)[None, :, None] == SKIP, NONE, free)
        return jnp.where(self.free.T[:, None, :], text, jnp.where(own, jnp.float32(0), NONE))


def states_before(edges: Edges, columns: Columns, start: Array) -> Array:
    """(S, B) 0 for states that the columns before `start` may lead to, -inf for the others. Each
    counts once, by however many texts it is reached."""
    place = jnp.arange(columns.free.shape[1])[None, :]

    def walk() -> Array:
        """All of them are written: there is one state."""

        def step(at, now):
            state, alive = now
            there, label, target = edges.leaving(state)
            reads = there & (label == columns.label[:, at][:, None])
            to = jnp.max(jnp.where(reads, target, 0), axis=1)
            stays = columns.label[:, at] == SKIP
            return jnp.where(stays, state, to), alive & (stays | jnp.any(reads, axis=1))

        rows = columns.free.shape[0]
        begun = (jnp.zeros(rows, jnp.int32), jnp.ones(rows, bool))
        state, alive = jax.lax.fori_loop(0, start, step, begun)
        here = jnp.arange(edges.states)[:, None] == state[None, :]
        return jnp.where(here & alive[None, :], jnp.float32(0), NONE)

    def search() -> Array:
        def step(at, reached):
            moved = _reads(edges, columns, at) + reached[edges.arc_source]
            moved = jax.ops.segment_max(moved, edges.arc_target, edges.states)
            return jnp.where(_skipped(columns, at), reached, moved)

        first = jnp.full((edges.states, columns.free.shape[0]), NONE, jnp.float32).at[0].set(0)
        return jax.lax.fori_loop(0, start, step, first)

    return jax.lax.cond(jnp.any(columns.free & (place < start)), search, walk)


def states_after(edges: Edges, columns: Columns, end: Array) -> Array:
    """(S, B) 0 for states from which the columns from `end` on may end a text, else -inf."""
    rows, length = columns.free.shape
    place = jnp.arange(length)[None, :]

    def count() -> Array:
        """All of them are open, and an end token fills them up."""
        near = edges.distance <= length - end
        return jnp.broadcast_to(jnp.where(near, jnp.float32(0), NONE)[:, None], (near.size, rows))

    def search() -> Array:
        def step(at, reached):
            moved = _reads(edges, columns, length - 1 - at) + reached[edges.arc_target]
            moved = jax.ops.segment_max(moved, edges.arc_source, edges.states)
            return jnp.where(_skipped(columns, length - 1 - at), reached, moved)

        ending = jnp.where(edges.accepts, jnp.float32(0), NONE)[:, None]
        last = jnp.broadcast_to(ending, (edges.states, rows))
        return jax.lax.fori_loop(0, length - end, step, last)

    if not edges.padded:
        return search()
    return jax.lax.cond(jnp.any(~columns.free & (place >= end)), search, count)


def _reads(edges: Edges, columns: Columns, at: Array) -> Array:
    """(A, B) 0 for arcs that a column may take, -inf for the others."""
    own = edges.part_label[:, None] == columns.label[:, at][None, :]
    reads = jnp.where(columns.free[:, at][None, :] | own, jnp.float32(0), NONE)
    return jax.ops.segment_max(reads, edges.part_bundle, edges.bundles)[edges.arc_bundle]


def _skipped(columns: Columns, at: Array) -> Array:
    """(1, B) whether a column holds what is no text, and leaves the state as it is."""
    return (~columns.free[:, at] & (columns.label[:, at] == SKIP))[None, :]


class Passes(NamedTuple):
    """What both passes find for the W columns of a window. A step's draw reads it too, the next
    step reads nothing of it."""

    begin: Array
    """(B,) the state before it; the likeliest, where columns before it are open."""
    after: Array
    """(W, S, B) log-weight of the columns to the right, by the state they begin in."""
    weight: Array
    """(W, C, B) log-weight of all other columns, for each class that this one may hold."""
    possible: Array
    """(B,) whether any text matches."""


def both_passes(edges: Edges, weights: Array, first: Array, last: Array) -> Passes:
    """The forward and the backward pass.

    Args:
      edges: of the automaton.
      weights: (W, C, B) log-weight of each class at each column.
      first: (S, B) log-weight of the states before the first column, and
      last: (S, B) after the last one.
    """
    source, target, bundle = edges.arc_source, edges.arc_target, edges.arc_bundle
    skips = weights[:, SKIP] > NONE
    width, _, rows = weights.shape

    def bundled(values: Array, from_, to, count: int) -> Array:
        """Sums for all columns at once: from classes to bundles, or back."""
        flat = jnp.transpose(values, (1, 0, 2)).reshape(-1, width * rows)
        sums = log_sums(flat[from_], to, count).reshape(count, width, rows)
        return jnp.transpose(sums, (1, 0, 2))

    def centred(values: Array) -> Array:
        """Only differences between states matter: near 0, numbers are dense."""
        top = jnp.max(values, axis=0, keepdims=True)
        return values - jnp.where(top > NONE, top, 0)

    def forward(before, column):
        weight, skip = column
        after = log_sums(before[source] + weight[bundle], target, edges.states)
        return centred(jnp.where(skip[None, :], before, after)), before

    def backward(after, column):
        weight, skip, before = column
        ahead = after[target]
        others = log_sums(before[source] + ahead, bundle, edges.bundles)
        here = log_sums(weight[bundle] + ahead, source, edges.states)
        return centred(jnp.where(skip[None, :], after, here)), (after, others)

    read = bundled(weights, edges.part_label, edges.part_bundle, edges.bundles)
    _, before = jax.lax.scan(forward, first, (read, skips))
    columns = (read, skips, before)
    here, (after, others) = jax.lax.scan(backward, last, columns, reverse=True)
    others = bundled(others, edges.part_bundle, edges.part_label, edges.count)
    whole = (first + here).T
    return Passes(first_largest(whole), after, others, jnp.max(whole, axis=1) > NONE)


class Path(NamedTuple):
    """A text that matches, drawn class by class; (W, B) each."""

    label: Array
    """The class of each column."""
    spare: Array
    """Whether none of the values in `best` could be had."""
    level: Array
    """How far the winner stands above the logarithm of all weights: a standard Gumbel variable,
    whoever won."""


def draw_path(
    edges: Edges, begin: Array, after: Array, weight: Array, best: Array, spare: Array, mass: Array
) -> Path:
    """Draws the columns of a window together, from left to right.

    A column's class is the one with the largest `best`, which holds noise already, corrected by
    what is to the right and by what the column was told of all others: if `best` comes from the
    marginals themselves, the texts follow their distribution given that they match, exactly.

    Args:
      edges: of the automaton.
      begin: (B,) the state before the window.
      after: (W, S, B) and
      weight: (W, C, B) from `both_passes`.
      best: (W, C, B) the largest value of each class, -inf for classes that shall not be drawn.
      spare: (W, C, B) the same, for where `best` leaves nothing that matches.
      mass: (W, C, B) the log-probability of each class that `best` was drawn from.
    """
    row = jnp.arange(begin.shape[0])[:, None]

    def draw(state, column):
        after, weight, best, spare, mass = column
        there, label, target = edges.leaving(state)
        ahead, told = after[target, row], weight[label, row]
        change = jnp.where(there & (ahead > NONE) & (told > NONE), ahead - told, NONE)
        values, others = best[label, row] + change, spare[label, row] + change
        short = jnp.max(values, axis=1) == NONE
        values = jnp.where(short[:, None], others, values)
        choice = first_largest(values)[:, None]
        total = jax.nn.logsumexp(mass[label, row] + change, axis=1)
        level = jnp.max(values, axis=1) - total
        chosen, to = (jnp.take_along_axis(part, choice, axis=1)[:, 0] for part in (label, target))
        return jnp.where(best[SKIP] > NONE, state, to), Path(chosen, short, level)

    _, path = jax.lax.scan(draw, begin, (after, weight, best, spare, mass))
    return path
