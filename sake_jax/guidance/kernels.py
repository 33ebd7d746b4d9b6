"""Gaussian kernels over feature rows: the geometry that diversity is measured in.

Everything here speaks of one group of rows that are compared with each other (one
sequence, or one column over the samples of a prompt); `jax.vmap` does the batch.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sake_jax.checks import number
from sake_jax.guidance.select import threshold
from sake_jax.node import Node
from sake_jax.typing import Leaf

Heuristic = Callable[[Float[Array, "..."], Float[Array, "..."]], Float[Array, ""]]
"""`(squared distances, weights of the pairs) -> squared bandwidth`."""


FEW = 32
"""Up to this many rows are subtracted from each other, one by one."""


class Peers(Node):
    """What the window's rows are compared with: all rows of the group, as constants.

    An objective of your own gets them as its second argument; see `diversity`.

    >>> rows, everyone = jnp.array([[0.0], [0.0], [9.0]]), jnp.arange(3)
    >>> widths = {"bandwidth": jnp.float32(1), "attention_bandwidth": jnp.inf}
    >>> peers = Peers(rows, everyone, jnp.ones(3), everyone, offset=jnp.zeros(3), **widths)
    >>> collisions(rows, peers).sum(axis=1).round(3).tolist()  # how crowded it is around each row
    [1.0, 1.0, 0.0]
    """

    rows: Leaf
    """(L, D) every row, the window's own included."""
    positions: Leaf
    """(L,) where the rows stand in the sequence."""
    weight: Leaf
    """(L,) 1 for rows that take part, 0 for padding."""
    index: Leaf
    """(W,) where the window's rows stand among `rows`."""
    bandwidth: Leaf
    """() σ of the semantic kernel."""
    attention_bandwidth: Leaf
    """() σ_attn of the kernel over positions."""
    offset: Leaf
    """(W,) zeros added to squared distances: their gradient is the weight of the self term."""


def squared_distances(
    rows: Float[Array, "W D"], others: Float[Array, "L D"]
) -> Float[Array, "W L"]:
    """|r_i - o_j|² by one matrix product at full precision (a TPU's default is bfloat16).

    Give it rows that are centred: the product cancels the squared norms. What
    rounding leaves below zero is lifted to zero without touching the gradient. Few rows, such as
    the samples of a prompt, may be so close that nothing would be left: they are subtracted.
    """
    if others.shape[0] <= FEW:
        return jnp.sum(jnp.square(rows[:, None] - others[None, :]), axis=-1)
    products = jnp.matmul(rows, others.T, precision=jax.lax.Precision.HIGHEST)
    norms = jnp.sum(rows * rows, axis=1)[:, None] + jnp.sum(others * others, axis=1)[None, :]
    distances = norms - 2 * products
    return distances + jax.lax.stop_gradient(jnp.maximum(distances, 0) - distances)


def centre(peers: Peers) -> Float[Array, "1 D"]:
    """The mean of the rows that take part: distances do not change, their rounding does."""
    total = jnp.sum(peers.weight[:, None] * peers.rows, axis=0, keepdims=True)
    return jax.lax.stop_gradient(total / jnp.maximum(jnp.sum(peers.weight), 1))


def pair_weights(peers: Peers) -> Float[Array, "W L"]:
    """1 where a window row meets another row, 0 for itself and for padding on either side."""
    others = jnp.arange(peers.rows.shape[0])[None, :] != peers.index[:, None]
    return (
        peers.weight[peers.index][:, None]
        * peers.weight[None, :]
        * others.astype(peers.weight.dtype)
    )


def attention(peers: Peers) -> Float[Array, "W L"]:
    """κ_attn(i, j) = exp(-|i - j|² / 2σ_attn²) between the window's rows and all rows."""
    positions = peers.positions.astype(peers.rows.dtype)
    distance = positions[peers.index][:, None] - positions[None, :]
    return jnp.exp(-jnp.square(distance) / (2 * jnp.square(peers.attention_bandwidth)))


def collisions(rows: Float[Array, "W D"], peers: Peers) -> Float[Array, "W L"]:
    """W_ij = κ_attn(i, j)² κ(h_i, h_j)², zero for j = i and for padding.

    With κ(h_i, h_j)² = exp(-|h_i - h_j|² / σ²).

    >>> rows, everyone = jnp.array([[0.0], [0.0], [9.0]]), jnp.arange(3)
    >>> widths = {"bandwidth": jnp.float32(1), "attention_bandwidth": jnp.inf}
    >>> peers = Peers(rows, everyone, jnp.ones(3), everyone, offset=jnp.zeros(3), **widths)
    >>> collisions(rows, peers).round(3).tolist()  # the first two rows are the same
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    middle = centre(peers)
    distances = squared_distances(rows - middle, peers.rows - middle) + peers.offset[:, None]
    semantic = jnp.exp(-distances / jnp.square(peers.bandwidth))
    return pair_weights(peers) * jnp.square(attention(peers)) * semantic


def density(rows: Float[Array, "W D"], peers: Peers) -> Float[Array, "L L"]:
    """ρ = (K ∘ K_attn) / L over the whole group, with the window's rows put in place.

    Symmetric, positive semi-definite, of trace one (Proposition 4.2); padding has
    zero rows and columns and does not count in L.

    >>> rows, everyone = jnp.array([[0.0], [0.0], [9.0]]), jnp.arange(3)
    >>> widths = {"bandwidth": jnp.float32(1), "attention_bandwidth": jnp.inf}
    >>> peers = Peers(rows, everyone, jnp.ones(3), everyone, offset=jnp.zeros(3), **widths)
    >>> round(float(jnp.trace(density(rows, peers))), 4)
    1.0
    """
    middle = centre(peers)
    everyone = peers.rows.at[peers.index].set(rows) - middle
    length = everyone.shape[0]
    whole = peers.replace(index=jnp.arange(length))
    offset = jnp.zeros(length, everyone.dtype).at[peers.index].set(peers.offset)
    distances = squared_distances(everyone, everyone) + offset[:, None] + offset[None, :]
    semantic = jnp.exp(-distances / (2 * jnp.square(peers.bandwidth)))
    off_diagonal = pair_weights(whole) * attention(whole) * semantic
    gram = off_diagonal + jnp.diag(peers.weight)
    return gram / jnp.maximum(jnp.sum(peers.weight), 1)


def median(distances: Float[Array, "..."], weights: Float[Array, "..."]) -> Float[Array, ""]:
    """The median squared distance: half of the pairs are nearer than σ."""
    counted = (weights.reshape(-1) > 0).astype(distances.dtype)
    count = jnp.sum(counted)
    middle = threshold(distances.reshape(-1), counted, count - (count - 1) // 2)
    middle = middle.astype(distances.dtype)
    return jnp.where(count > 0, middle, jnp.ones_like(middle))


def mean(distances: Float[Array, "..."], weights: Float[Array, "..."]) -> Float[Array, ""]:
    """The mean squared distance: no sort, so cheaper than the median at great length."""
    total = jnp.sum(weights)
    average = jnp.sum(weights * distances) / jnp.maximum(total, 1)
    return jnp.where(total > 0, average, jnp.ones_like(average))


HEURISTICS: dict[str, Heuristic] = {"median": median, "mean": mean}
"""Bandwidths chosen from the rows themselves, by name."""


def vanishing(distance: float, eps: float = 0.01) -> float:
    """The σ_attn at which attention has fallen to `eps` at this distance.

    σ_attn = d / sqrt(2 ln(1 / eps)), the paper's initialisation heuristic.

        >>> round(vanishing(60), 1)
        19.8
    """
    distance = number("distance", distance, above=0, schedule=False)
    eps = number("eps", eps, above=0, at_most=0.99, schedule=False)
    return distance / math.sqrt(2 * math.log(1 / eps))
