"""From an objective to the force on each row, and to the signal over the vocabulary.

All functions speak of one group of rows; `jax.vmap` does the batch.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sake_jax.guidance.kernels import (
    Peers,
    attention,
    centre,
    collisions,
    pair_weights,
    squared_distances,
)
from sake_jax.guidance.objectives import Objective
from sake_jax.node import Node
from sake_jax.sharding import constrain
from sake_jax.typing import Leaf

CHUNK = 2048
"""Candidate tokens looked at together by `exact_signal`: bounds its memory to L x CHUNK."""


class Force(Node):
    """What an objective does to the window's rows."""

    direction: Leaf
    """(W, D) the gradient: where each row should move."""
    self_weight: Leaf
    """(W,) how much of the row itself is in its direction: direction = self_weight·h - pull."""
    redundancy: Leaf
    """(W,) Σ_j W_ij, how much kernel mass other rows share with this one."""


def autodiff(objective: Objective, rows: Float[Array, "W D"], peers: Peers) -> Force:
    """The force by `jax.grad`.

    Every kernel objective pushes h_i along Σ_j w_ij (h_i - h_j), w_ij = 2 ∂D/∂|h_i - h_j|².
    A constant added to a row's squared distances has the derivative Σ_j w_ij / 2: that is
    how the weight of the self term is read off without knowing the objective.
    """

    def value(rows, offset):
        return objective(rows, peers.replace(offset=offset))

    direction, slope = jax.grad(value, argnums=(0, 1))(rows, peers.offset)
    return Force(direction, 2 * slope, jnp.sum(collisions(rows, peers), axis=1))


def closed_form(objective: Objective, rows: Float[Array, "W D"], peers: Peers) -> Force:
    """Proposition 4.2, for the collision objective: (2/σ²) Σ_{j≠i} κ_attn² κ² (h_i - h_j).

    As two matrix products, (2/σ²) (rowsum(W)·H - W H).
    """
    weights = collisions(rows, peers)
    middle = centre(peers)
    total = jnp.sum(weights, axis=1)
    pull = jnp.matmul(weights, peers.rows - middle, precision=jax.lax.Precision.HIGHEST)
    scale = 2 / jnp.square(peers.bandwidth)
    return Force(scale * (total[:, None] * (rows - middle) - pull), scale * total, total)


def exact_signal(
    rows: Float[Array, "W D"], peers: Peers, table: Float[Array, "V D"]
) -> tuple[Float[Array, "W V"], Float[Array, "W"]]:
    """The discrete gap D(y; h_-i) - D(h_i; h_-i) for every token y, without linearisation.

    Bounded by the redundancy Σ_j W_ij, which is returned with it. The vocabulary is
    taken in chunks, so no L x V array exists.
    """
    near = pair_weights(peers) * jnp.square(attention(peers))
    redundancy = jnp.sum(collisions(rows, peers), axis=1)
    middle = centre(peers)
    others = peers.rows - middle
    vocabulary, width = table.shape
    rounds = -(-vocabulary // CHUNK)
    fill = -vocabulary % rounds
    # A chunk is every `rounds`-th token: each device of a mesh has an equal part of it.
    chunks = jnp.pad(table, ((0, fill), (0, 0))).reshape(-1, rounds, width)
    chunks = constrain(chunks, ("vocab",))

    def gap(index):
        candidates = jax.lax.dynamic_index_in_dim(chunks, index, axis=1, keepdims=False)
        candidates = candidates.astype(others.dtype) - middle
        semantic = jnp.exp(-squared_distances(others, candidates) / jnp.square(peers.bandwidth))
        return redundancy[:, None] - jnp.matmul(near, semantic)

    gaps = jnp.moveaxis(jax.lax.map(gap, jnp.arange(rounds)), 0, -1)
    gaps = gaps.reshape(rows.shape[0], -1)[:, :vocabulary]
    return constrain(gaps, (None, "vocab")), redundancy


Gradient = Callable[[Objective, Float[Array, "W D"], Peers], Force]
"""One of your own gives the force of an objective on the window's rows."""

GRADIENTS: dict[str, Any] = {
    "autodiff": autodiff,
    "closed_form": closed_form,
    "exact": exact_signal,
}
"""By their short names. `exact_signal` is no `Gradient`: the gap to every token has no direction,
so it is a signal over the vocabulary at once."""
