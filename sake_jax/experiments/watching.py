"""What a guidance does at every position: Cov[z, γψ], and how redundant the position is."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import sake_jax as sj
from sake_jax.experiments.samples import busy
from sake_jax.guidance import correlation, covariance
from sake_jax.typing import Leaf

FEWEST = 5
"""Open positions of a row that are worth a rank correlation."""


class PositionReport(sj.Node):
    """What a guidance did at each position of the window; all are (B, W)."""

    covariance: Leaf
    """Cov[z, γψ] under the logits it met."""
    correlation: Leaf
    """The same, scaled to [-1, 1]."""
    redundancy: Leaf
    """Row sums of SAKE's squared kernel."""
    open: Leaf
    """Whether there was something to write."""


class Watched(sj.Guidance):
    """A guidance that only changes logits; γψ is what it adds to them.

    The redundancy is that of SAKE's kernel, which record="full" keeps, and 0 for others.
    """

    inner: sj.Guidance

    @property
    def couples_samples(self):
        return self.inner.couples_samples

    def init(self, ctx):
        return self.inner.init(ctx)

    def push(self, state, ctx):
        return self.inner.push(state, ctx)

    def apply(self, logits, psi, state, ctx):
        guided, state, report = self.inner.apply(logits, psi, state, ctx)
        added = guided - logits
        redundancy = jnp.zeros(ctx.open.shape, jnp.float32)
        if isinstance(report, sj.Signal) and report.weights is not None:
            redundancy = jnp.sum(report.weights, axis=-1)
        seen = PositionReport(
            covariance=covariance(logits, logits, added),
            correlation=correlation(logits, logits, added),
            redundancy=redundancy,
            open=ctx.open,
        )
        return guided, state, seen


class Watch(NamedTuple):
    """What was seen of a generation."""

    measured: np.ndarray
    """(N,) the change of entropy, of each row at each step that had something to write."""
    predicted: np.ndarray
    """(N,) the same to first order, -Cov[z, γψ]; both are means over open positions."""
    open: np.ndarray
    """(N, W) their open positions."""
    covariance: np.ndarray
    """(N, W)"""
    correlation: np.ndarray
    """(N, W)"""
    redundancy: np.ndarray
    """(N, W)"""


def watched(out: sj.Generation) -> Watch:
    """What `Watched`, as the only guidance, left in a generation with record="full"."""
    assert out.info is not None, "nothing was read from an earlier run"
    info, seen, at = out.info, out.info.signals[0], busy(out.info)
    assert isinstance(seen, PositionReport), "the only report is that of Watched"
    is_open = np.asarray(seen.open, bool)[at]
    along = np.asarray(seen.covariance)[at]
    predicted = -np.mean(along, axis=1, where=is_open)
    measured = np.asarray(info.entropy - info.base_entropy)[at]
    return Watch(measured, predicted, is_open, along, seen.correlation[at], seen.redundancy[at])


def agreement(watch: Watch) -> dict[str, float]:
    """How far the first order goes."""
    measured, predicted = watch.measured, watch.predicted
    size = max(float(np.mean(np.abs(measured))), 1e-12)
    return {
        "measured": float(np.mean(measured)),
        "predicted": float(np.mean(predicted)),
        "error": float(np.mean(np.abs(measured - predicted))) / size,
        "falls": float(np.mean(measured < 0)),
        "same sign": float(np.mean(np.sign(measured) == np.sign(predicted))),
    }


def modulation(watch: Watch) -> dict[str, float]:
    """How Cov[z, γψ] goes with redundancy, by ranks; and what it is, and how often negative, which
    flattens, in the least and in the most redundant quarter of the positions."""
    along, near = watch.covariance[watch.open], watch.redundancy[watch.open]
    low, high = np.quantile(near, [0.25, 0.75])
    least, most = along[near <= low], along[near >= high]
    rows = zip(watch.covariance, watch.redundancy, watch.open, strict=True)
    inside = [spearman(a[at], b[at]) for a, b, at in rows if at.sum() >= FEWEST]
    return {
        "spearman": spearman(along, near),
        "inside": float(np.mean(inside)) if inside else 0.0,
        "scale-free": spearman(watch.correlation[watch.open], near),
        "least": float(np.mean(least)),
        "most": float(np.mean(most)),
        "least flattened": float(np.mean(least < 0)),
        "most flattened": float(np.mean(most < 0)),
    }


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """The correlation of ranks; 0 where either does not vary.

    >>> spearman(np.asarray([1.0, 2.0, 9.0]), np.asarray([0.3, 0.2, 0.1]))
    -1.0
    """
    first, second = _ranks(a), _ranks(b)
    spread = float(np.std(first) * np.std(second))
    if not spread:
        return 0.0
    together = np.mean((first - first.mean()) * (second - second.mean()))
    return round(float(together) / spread, 12)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Places in the order of size; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
