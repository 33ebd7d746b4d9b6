"""One read of several canvases of each row, with a cache that has rows for all of them."""

from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.samplers.sampler import Sampler
from sake_jax.sharding import constrain_rows
from sake_jax.typing import Params
from sake_jax.view import Canvas, Reread, View


def read_canvases(
    sampler: Sampler, params: Params, views: View, cache: Any, lead: Array
) -> tuple[Array, Any]:
    """Features of all canvases, (G, K, M, L, D), and the cache. At a block's first step those of
    the first canvas are there only."""

    def flat(views: View) -> View:
        """As one batch; what all rows share is the leading group's."""

        def leaf(x: Array) -> Array:
            return x.reshape(-1, *x.shape[3:]) if x.ndim > 2 else x[lead, 0]

        return constrain_rows(jax.tree.map(leaf, views), like=params)

    shape = views.tokens.shape[:3]
    back = lambda rows: rows.reshape(*shape, *rows.shape[1:])  # noqa: E731
    plan: Any = sampler.plan  # of blocks, where there is a cache
    if not plan.cached:
        features, _ = sampler.denoiser.read(params, flat(views), None)
        return back(features), None

    again, reread = plan.again, cast(Reread, views.reread)
    axes = _row_axes(sampler, params, views.tokens.shape[-1])

    def first(cache: Any) -> tuple[Array, Any]:
        single = lambda x, axis: _single(x, axis, shape)  # noqa: E731
        view = flat(jax.tree.map(lambda x: x[:, :1], views))
        chosen = Reread(reread.choice[lead, 0] - again, reread.spans[again:])
        features, cache = sampler.denoiser.read(
            params, view.replace(reread=chosen), jax.tree.map(single, cache, axes)
        )
        many = lambda x, axis: _many(x, axis, shape)  # noqa: E731
        return back(many(features, 0)), jax.tree.map(many, cache, axes)

    def other(cache: Any) -> tuple[Array, Any]:
        view = flat(views)
        view = view.replace(reread=Reread(reread.choice[lead, 0], reread.spans[:again]))
        features, cache = sampler.denoiser.read(params, view, cache)
        return back(features), cache

    return jax.lax.cond(reread.choice[lead, 0] >= again, first, other, cache)


def _row_axes(sampler: Sampler, params: Params, length: int) -> Any:
    """Which axis of each array of a cache is the batch; -1: none."""
    few, more = (
        jax.eval_shape(lambda p, n=n: sampler.denoiser.empty_cache(p, n, length), params)
        for n in (1, 2)
    )
    pairs = lambda a, b: zip(a.shape, b.shape, strict=True)  # noqa: E731
    differ = lambda a, b: [at for at, (n, m) in enumerate(pairs(a, b)) if n != m]  # noqa: E731
    return jax.tree.map(lambda a, b: ([*differ(a, b), -1])[0], few, more)


def _many(x: Array, axis: int, shape: tuple[int, int, int]) -> Array:
    """An array with G M rows with K copies of them, (G, K, M)."""
    if axis < 0:
        return x
    groups, drafts, size = shape
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    apart = x.reshape(*before, groups, 1, size, *after)
    copies = jnp.broadcast_to(apart, (*before, groups, drafts, size, *after))
    return copies.reshape(*before, -1, *after)


def _single(x: Array, axis: int, shape: tuple[int, int, int]) -> Array:
    """The first of the K copies."""
    if axis < 0:
        return x
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    apart = x.reshape(*before, *shape, *after)
    return jax.lax.index_in_dim(apart, 0, axis + 1, keepdims=False).reshape(*before, -1, *after)


def spread_cache(
    sampler: Sampler, params: Params, cache: Any, canvas: Canvas, size: int, drafts: int
) -> Any:
    """A cache of all rows for all canvases of theirs."""
    if cache is None:
        return None
    rows, length = canvas.tokens.shape
    axes = _row_axes(sampler, params, length)
    shape = (rows // size, drafts, size)
    return jax.tree.map(lambda x, axis: _many(x, axis, shape), cache, axes)
