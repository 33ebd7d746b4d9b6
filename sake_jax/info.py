"""What a run records of its steps, inside the compiled loop."""

import jax.numpy as jnp
from jax import Array

from sake_jax.node import Node
from sake_jax.typing import Leaf

RECORDS = ("brief", "signal", "full")
"""How much a run records: "signal" adds what needs base and guided logits side by side, "full"
what a viewer shows of every position."""


class Signal(Node):
    """What one diversity guidance did at a step, means over each row's open positions.

    >>> one = Signal(*jnp.float32([[0.3], [0.4], [1.0], [0.2]]))
    >>> one.correlation.shape, one.weights is None  # a row; kernels with record="full" only
    ((1,), True)
    """

    covariance: Leaf
    """(B,) Cov[z, psi] under the logits it met: minus the entropy slope (Proposition 1)."""
    correlation: Leaf
    """(B,) the same, scaled to [-1, 1]; positive sharpens, negative flattens."""
    rms: Leaf
    """(B,) root mean square of the centred signal, strength included."""
    redundancy: Leaf
    """(B,) row sums of the squared kernel: 0 for rows unlike all others."""
    weights: Leaf = None
    """(B, W, L) W_ij, which rows of the sequence repel which (record="full")."""
    sample_weights: Leaf = None
    """(B, W, M) the same across samples: which of the prompt's M samples repel this one where it
    stands (record="full")."""


class Candidates(Node):
    """The most likely tokens of every window position, the most likely first.

    >>> two = Candidates(jnp.int32([[[7, 3]]]), jnp.float32([[[-0.5, -1.2]]]), jnp.float32([[0.9]]))
    >>> two.ids.shape  # a row, a position, its two most likely tokens
    (1, 1, 2)
    """

    ids: Leaf
    """(B, W, K)"""
    log_p: Leaf
    """(B, W, K) their log-probabilities in nats."""
    entropy: Leaf
    """(B, W) of the whole distribution, in nats."""


class Info(Node):
    """What happened at one step, one entry per row of the batch.

    >>> import jax
    >>> import sake_jax as sj
    >>> denoiser, params = sj.testing.ToyDenoiser(), sj.testing.toy_params(0)
    >>> sampler = sj.sampler(denoiser, sj.blocks(4, 4), guidance=sj.sake(1.0), record="full")
    >>> canvas = sj.canvas([[1, 2]], 4, mask_id=16)
    >>> _, info = jax.eval_shape(sj.run, sampler, params, jax.random.key(0), canvas)  # no run
    >>> info.entropy.shape, info.candidates.ids.shape  # steps first, then rows
    ((4, 1), (4, 1, 4, 5))
    >>> info.signals[0].correlation.shape, info.signals[0].weights.shape
    ((4, 1), (4, 1, 4, 6))
    """

    entropy: Leaf
    """Mean entropy in nats of the guided distribution over open positions."""
    confidence: Leaf
    """Mean probability of the tokens that were revealed."""
    revealed: Leaf
    """How many positions were written."""
    finite: Leaf
    """False where a row's logits hold a NaN or an infinity and something was still open."""
    base_entropy: Leaf = None
    """The same entropy before guidance (record="signal")."""
    kl: Leaf = None
    """KL(guided || base) in nats, mean over open positions (record="signal")."""
    signals: tuple = ()
    """What the guidances report, in the order of the chain: a `Signal` for each diversity
    guidance, and records of your own (record="signal")."""
    window_start: Leaf = None
    """() the first column of the window (record="full")."""
    base_candidates: Candidates | None = None
    """Before guidance (record="full")."""
    candidates: Candidates | None = None
    """After guidance (record="full")."""
    read: Leaf = None
    """Which of the run's reads served this step, counted from 0: several steps have the same where
    drafts were right. None without drafts, where every step has its own."""


def mean_over(values: Array, where: Array) -> Array:
    """Mean of (B, W) values over the chosen positions of each row; 0 where none is chosen."""
    count = jnp.sum(where, axis=1, dtype=values.dtype)
    return jnp.sum(jnp.where(where, values, 0), axis=1) / jnp.maximum(count, 1)
