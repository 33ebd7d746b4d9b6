"""Splash attention: JAX's own kernel for TPUs, which never holds the scores of all columns.

For networks in which every row looks at the same columns. Elsewhere than on a TPU the same is
computed by `jax.nn.dot_product_attention`.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from sake_jax.precision import precise
from sake_jax.sharding import Axes, mesh_of, spec

LANES = 128
"""What the kernel's tiles are multiples of."""
TILES = (512, 256, 128)
SPLIT: Axes = ("batch", None, "heads", None)


def splash(q: Array, k: Array, v: Array, attend: Array, interpret: bool = False) -> Array:
    """softmax(q k / √head_dim) v over the attended columns.

    Args:
      q: (B, T, H, head_dim) queries.
      k: (B, P, K, head_dim) keys.
      v: values, as keys.
      attend: (B, P) which columns all rows look at.
      interpret: runs the kernel step by step, for tests without a TPU.

    Returns (B, T, H, head_dim).
    """
    groups = q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(part, groups, axis=2) for part in (k, v))
    mesh = mesh_of(q)
    if mesh is None:
        return _kernel(q, k, v, attend, interpret)
    split = spec(q.shape, SPLIT, dict(mesh.shape))
    rows = PartitionSpec(split[0], None)
    # The kernel's results do not say over which axes they vary, so that cannot be checked.
    return jax.shard_map(
        functools.partial(_kernel, interpret=interpret),
        mesh=mesh,
        in_specs=(split, split, split, rows),
        out_specs=split,
        check_vma=False,
    )(q, k, v, attend)


def _kernel(q: Array, k: Array, v: Array, attend: Array, interpret: bool) -> Array:
    """On one device."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    rows, heads, width = q.shape[1:]
    q = (precise(q) * width**-0.5).astype(q.dtype)
    q, k, v = (jnp.moveaxis(_padded(part, 1), 2, 1) for part in (q, k, v))
    # Columns of another segment are not looked at.
    segments = _padded(attend.astype(jnp.int32), 1)
    own = jnp.ones(q.shape[2], jnp.int32)
    shape = (q.shape[2], k.shape[2])
    # JAX's own code promotes, which a user's strict mode would refuse.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        attention = kernel.make_splash_mha(
            masks.MultiHeadMask([masks.FullMask(shape)] * heads),
            head_shards=1,
            q_seq_shards=1,
            block_sizes=_tiles(*shape, kernel),
            interpret=interpret,
        )

        def one(q: Array, k: Array, v: Array, segments: Array) -> Any:
            return attention(q, k, v, kernel.SegmentIds(own, segments))

        mixed = jax.vmap(one)(q, k, v, segments)
    return jnp.moveaxis(mixed, 1, 2)[:, :rows]


def _tiles(rows: int, columns: int, kernel: Any) -> Any:
    largest = lambda size: next(tile for tile in TILES if size % tile == 0)  # noqa: E731
    return kernel.BlockSizes(block_q=largest(rows), block_kv=largest(columns))


def _padded(x: Array, axis: int) -> Array:
    """With zeros at the end of an axis, so that tiles divide it."""
    more = [(0, -size % LANES if at == axis else 0) for at, size in enumerate(x.shape)]
    return jnp.pad(x, more)
