"""How far apart the rows are that diversity guidance compares."""

from sake_jax.core import Context
from sake_jax.guidance.groups import group
from sake_jax.guidance.kernels import median
from sake_jax.precision import precise
from sake_jax.typing import PerRow


def median_distance(ctx: Context) -> PerRow:
    """(B,) the median distance of each sequence's rows: what SAKE takes for σ by default.

    For guidances that choose a bandwidth of their own, as a multiple of it or by a schedule:

        >>> import sake_jax as sj
        >>> class Wider(sj.Guidance):
        ...     inner: sj.guidance.Diversity
        ...     def push(self, state, ctx):
        ...         sigma = 2 * sj.guidance.median_distance(ctx)
        ...         return self.inner.replace(bandwidth=sigma).push(state, ctx)
    """
    rows = precise(ctx.features)
    # The bandwidths of the call only fill its signature: the heuristic replaces the first, and
    # the second does not enter distances.
    ((_, peers, _),) = group("sequence", rows, ctx.view.attend, ctx, 1.0, median, 1.0)
    return peers.bandwidth
