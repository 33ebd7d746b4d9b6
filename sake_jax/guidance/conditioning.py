"""Independent columns under an automaton: what each may hold so that the whole text matches.

The columns of a canvas are a hidden Markov chain whose states are the automaton's: one pass from
the left and one from the right (the forward-backward algorithm) give each column its distribution
given that all of them together match, and a pass from the left then draws them together. Everything
is in logarithms: where a text that matches is unlikely, however unlikely, it is still there.

Arrays have the batch last, since edges are gathered and summed along their first axis.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.automata.tokenwise import SKIP
from sake_jax.guidance.select import first_largest
from sake_jax.node import Node
from sake_jax.typing import Leaf, Logits

NONE = -jnp.inf
"""The logarithm of no chance at all."""


class Edges(Node):
    """A `TokenAutomaton` as arrays; see there."""

    classes: Leaf
    first: Leaf
    source: Leaf
    label: Leaf
    target: Leaf
    accepts: Leaf
    count: int = struct.field(pytree_node=False, default=0)
    degree: int = struct.field(pytree_node=False, default=0)

    @property
    def states(self) -> int:
        return self.accepts.shape[0]


def log_sums(values: Array, segments: Array, count: int) -> Array:
    """(count, B) the logarithm of the sum of exp(values) over the rows of each segment."""
    top = jax.ops.segment_max(values, segments, count)
    base = jnp.where(top > NONE, top, 0)
    return base + jnp.log(jax.ops.segment_sum(jnp.exp(values - base[segments]), segments, count))


def _by_class(values: Logits, classes: Array, count: int, combine) -> Array:
    """(W, C, B) from (B, W, V): what `combine` makes of the tokens of each class."""
    rows, width, size = values.shape
    flat = jnp.transpose(values, (2, 1, 0)).reshape(size, width * rows)
    combined = combine(flat, classes, count).reshape(count, width, rows)
    return jnp.transpose(combined, (1, 0, 2))


def class_sums(values: Logits, edges: Edges) -> Array:
    """(W, C, B) the log-probability of each class of tokens."""
    return _by_class(values, edges.classes, edges.count, log_sums)


def class_tops(values: Logits, edges: Edges) -> Array:
    """(W, C, B) the largest value of each class of tokens."""
    return _by_class(values, edges.classes, edges.count, jax.ops.segment_max)


def of_tokens(by_class: Array, edges: Edges) -> Logits:
    """(B, W, V) for each token what its class has in (W, C, B)."""
    return jnp.transpose(by_class, (2, 0, 1))[:, :, edges.classes]


class Passes(NamedTuple):
    """What both passes find for each of N columns."""

    before: Array
    """(N, S, B) log-weight of the columns to the left, by the state they lead to."""
    after: Array
    """(N, S, B) log-weight of the columns to the right, by the state they begin in."""
    weight: Array
    """(N, C, B) log-weight of all other columns, for each class that this one may hold; only
    inside the window."""
    begin: Array
    """(N, B) the likeliest state before each column."""
    possible: Array
    """(B,) whether any text matches."""


def both_passes(edges: Edges, weights: Array, inside: Array) -> Passes:
    """The forward and the backward pass.

    Args:
      edges: of the automaton.
      weights: (N, C, B) log-weight of each class at each column.
      inside: (N,) where texts are summed; elsewhere it only counts whether there is one.
    """
    source, label, target = edges.source, edges.label, edges.target
    states, rows = edges.states, weights.shape[-1]

    def combine(values: Array, segments: Array, summed: Array) -> Array:
        def alternatives():
            return jax.ops.segment_max(values, segments, states)

        total = jax.lax.cond(summed, lambda: log_sums(values, segments, states), alternatives)
        # Only differences between states matter: so sums stay near 0, where numbers are dense.
        top = jnp.max(total, axis=0, keepdims=True)
        return total - jnp.where(top > NONE, top, 0)

    def forward(before, column):
        weight, summed = column
        return combine(before[source] + weight[label], target, summed), before

    def backward(after, column):
        weight, summed, before = column
        ahead = after[target]

        def others():
            return log_sums(before[source] + ahead, label, edges.count)

        mine = jax.lax.cond(summed, others, lambda: jnp.full_like(weight, NONE))
        here = combine(weight[label] + ahead, source, summed)
        return here, (after, mine, first_largest((before + here).T))

    first = jnp.full((states, rows), NONE, jnp.float32).at[0].set(0)
    ending = jnp.where(edges.accepts, jnp.float32(0), NONE)
    last = jnp.broadcast_to(ending[:, None], (states, rows))
    _, before = jax.lax.scan(forward, first, (weights, inside))
    here, (after, mine, begin) = jax.lax.scan(
        backward, last, (weights, inside, before), reverse=True
    )
    return Passes(before, after, mine, begin, here[0] > NONE)


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
    span = jnp.arange(edges.degree)[None, :]
    most = edges.label.shape[0] - 1

    def draw(state, column):
        after, weight, best, spare, mass = column
        place = edges.first[state][:, None] + span
        there = place < edges.first[state + 1][:, None]
        place = jnp.minimum(place, most)
        label, target = edges.label[place], edges.target[place]
        ahead = after[target, row]
        change = jnp.where(there & (ahead > NONE), ahead - weight[label, row], NONE)
        values, others = best[label, row] + change, spare[label, row] + change
        short = jnp.max(values, axis=1) == NONE
        values = jnp.where(short[:, None], others, values)
        choice = first_largest(values)[:, None]
        total = jax.nn.logsumexp(mass[label, row] + change, axis=1)
        level = jnp.max(values, axis=1) - total
        chosen = jnp.take_along_axis(label, choice, axis=1)[:, 0]
        return jnp.take_along_axis(target, choice, axis=1)[:, 0], Path(chosen, short, level)

    _, path = jax.lax.scan(draw, begin, (after, weight, best, spare, mass))
    return path


def any_token(count: int) -> Array:
    """(C,) the log-weights of a column that may hold any token of a text."""
    return jnp.where(jnp.arange(count) == SKIP, NONE, jnp.float32(0))
