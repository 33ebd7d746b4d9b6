"""Laws that every guidance obeys, and a toy denoiser to try one on.

>>> import sake_jax as sj
>>> sj.testing.check_guidance(sj.chain(sj.min_p(0.1), sj.temperature(0.7)))
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sake_jax.core import LOWEST, Context, Guidance, Tables
from sake_jax.guidance.compose import chain, guide, last_word
from sake_jax.node import Node
from sake_jax.typing import Logits, Params
from sake_jax.view import Canvas, Reread, View

Permute = Callable[[Guidance, np.ndarray], Guidance]


class ToyDenoiser(Node):
    """A small untied network with a linear head; with a cache it recomputes the window only.

    >>> denoiser, params = ToyDenoiser(), toy_params(0)
    >>> features, _ = denoiser.read(params, toy_view(0), None)
    >>> denoiser.head(params, features).shape  # rows, columns, tokens
    (4, 10, 17)
    """

    affine: ClassVar[bool] = True
    reads_perturbation: ClassVar[bool] = True

    def read(self, params: Params, view: View, cache: Any):
        """Each row mixes its token, its position, the condition and the mean of all rows."""
        embedded = params["input"][view.tokens] + params["place"][view.positions]
        if view.perturbation is not None:
            embedded = embedded + view.perturbation
        weight = view.attend[..., None].astype(embedded.dtype)
        mean = jnp.sum(weight * embedded, axis=1) / jnp.maximum(jnp.sum(weight, axis=1), 1)
        mixed = embedded + mean[:, None, :]
        if view.cond is not None:
            mixed = mixed + params["label"][view.cond][:, None, :]
        rows = jnp.tanh(mixed @ params["mix"]) * params["scale"]
        if cache is None:
            return rows, None
        rows = jnp.where(_reread(view)[None, :, None], rows, cache)
        return rows, rows

    def empty_cache(self, params: Params, batch: int, length: int):
        return jnp.zeros((batch, length, params["mix"].shape[0]), params["mix"].dtype)

    def head(self, params: Params, rows):
        return rows @ params["output"].T + params["bias"][None, None, :]

    def tables(self, params: Params) -> Tables:
        return Tables(params["input"], params["output"], params["bias"])


def _reread(view: View) -> Array:
    """(L,) which columns a read with a cache recomputes: what `view.reread` chooses."""
    column = jnp.arange(view.tokens.shape[1])
    chosen = view.reread or Reread(jnp.int32(0), ((0, view.width),))
    everything = (column.size, column.size)
    spans = jnp.asarray([everything if span is None else span for span in chosen.spans])
    before, after = spans[chosen.choice]
    first, end = view.window_start - before, view.window_start + after
    return (column >= first) & (column < end)


def toy_params(seed: int, vocabulary: int = 17, width: int = 6, length: int = 32) -> Params:
    """Random parameters for `ToyDenoiser`.

    >>> toy_params(0, vocabulary=5, width=3)["output"].shape
    (5, 3)
    """
    random = np.random.default_rng(seed)
    shapes = {
        "input": (vocabulary, width),
        "output": (vocabulary, width),
        "mix": (width, width),
        "place": (length, width),
        "label": (4, width),
        "bias": (vocabulary,),
    }
    params = {name: random.normal(size=shape) for name, shape in shapes.items()}
    return {name: jnp.asarray(p, jnp.float32) for name, p in params.items()} | {
        "scale": jnp.float32(2.0)
    }


def toy_view(
    seed: int, *, vocabulary: int = 17, rows: int = 4, length: int = 10, width: int = 6
) -> View:
    """A random view: padding on the left, a short prompt, a window at the end, some of it open.

    >>> view = toy_view(0, rows=2, length=8, width=3)
    >>> view.tokens.shape, int(view.window_start)
    ((2, 8), 5)
    """
    random = np.random.default_rng(seed)
    columns = np.arange(length)[None, :]
    pads = random.integers(0, 3, (rows, 1))
    start = length - width
    mask_id = vocabulary - 1
    is_open = (columns >= start) & (random.random((rows, length)) < 0.6)
    tokens = random.integers(0, mask_id, (rows, length))
    progress = jnp.full(rows, random.uniform(0.1, 0.9), jnp.float32)
    canvas = Canvas(
        tokens=jnp.asarray(np.where(is_open, mask_id, tokens), jnp.int32),
        open=jnp.asarray(is_open),
        prompt=jnp.asarray((columns >= pads) & (columns < start)),
        attend=jnp.asarray(columns >= pads),
        positions=jnp.asarray(np.repeat(columns, rows, axis=0), jnp.int32),
        prompt_id=jnp.asarray(np.arange(rows) // 2, jnp.int32),
        sample_id=jnp.asarray(np.arange(rows) % 2, jnp.int32),
        cond=jnp.asarray(random.integers(0, 3, rows), jnp.int32),
        mask_id=jnp.int32(mask_id),
        generation_start=start,
        samples=2,
    )
    return View(
        canvas=canvas,
        window_start=jnp.int32(start),
        time=1 - progress,
        next_time=0.5 * (1 - progress),
        progress=progress,
        quota=jnp.ones(rows, jnp.int32),
        width=width,
    )


def toy_context(params: Params, view: View, **changes: Any) -> Context:
    """The context a guidance meets when `ToyDenoiser` has read this view.

    >>> toy_context(toy_params(0), toy_view(0), record="signal").record
    'signal'
    """
    denoiser = ToyDenoiser()
    features, _ = denoiser.read(params, view, None)
    ctx = Context(
        view=view,
        features=features,
        tables=denoiser.tables(params),
        head=lambda rows: denoiser.head(params, rows),
        read=lambda other, cache: denoiser.read(params, other, cache),
        log_q=lambda logits: logits,
        fold=changes.get("record", "brief") == "brief",
    )
    return dataclasses.replace(ctx, **changes)


@jax.jit
def outcome(guidance: Guidance, params: Params, view: View) -> tuple[Logits, Logits]:
    """(log q after guidance, base logits) for the window of a toy scene.

    >>> import sake_jax as sj
    >>> guided, base = outcome(sj.temperature(0.5), toy_params(0), toy_view(0))
    >>> bool(jnp.any(guided != base))
    True
    """
    ctx = toy_context(params, view)
    composed = chain(guidance)
    guided = guide(composed, composed.init(ctx), ctx)
    return last_word(composed, guided, ctx.log_q(guided.logits), ctx), ctx.head(ctx.rows)


def _hold(true: Any, rule: str, got: str, remedy: str) -> None:
    if not true:
        raise AssertionError(f"{rule}, got {got}; {remedy}.")


def _same_distribution(a: Logits, b: Logits, rule: str, remedy: str) -> None:
    _close(jax.nn.softmax(a), jax.nn.softmax(b), 2e-5, rule, "probabilities", remedy)


def _close(a: Any, b: Any, atol: float, rule: str, what: str, remedy: str) -> None:
    a, b = np.asarray(a), np.asarray(b)
    same = np.allclose(a, b, rtol=1e-6, atol=atol, equal_nan=True)
    _hold(same, rule, f"{what} that differ by {np.max(np.abs(a - b)):.3g}", remedy)


def _alike(wanted: Any, got: Any, rule: str, remedy: str) -> None:
    """The same structure, shapes and dtypes; chex's own words are many, so they come last."""
    try:
        chex.assert_trees_all_equal_shapes_and_dtypes(wanted, got)
    except AssertionError as error:
        difference = f"{_outline(got)} for {_outline(wanted)}"
        raise AssertionError(f"{rule}, got {difference}; {remedy}.") from error


def _outline(tree: Any) -> list[str]:
    return [f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree)]


def _shapes(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    def one_step(guidance, params, view):
        ctx = toy_context(params, view)
        before = guidance.init(ctx)
        return before, guide(guidance, before, ctx)

    before, guided = jax.eval_shape(one_step, chain(guidance), toy_params(seed), toy_view(seed))
    rule = "guided logits must have the shape and dtype of the base ones"
    _alike(guided.base, guided.logits, rule, "cast or reshape what `apply` returns")
    rule, remedy = "the state after a step must be like that of `init`", "return the same arrays"
    _alike(before, guided.state, rule, remedy)


def _closed(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    view = toy_view(seed)
    guided, base = outcome(guidance, toy_params(seed), view)
    closed = ~np.asarray(view.window(view.open & view.attend))
    rule, remedy = "closed and padded positions must keep their logits", "change those of ctx.open"
    _close(guided[closed], base[closed], 1e-5, rule, "logits", remedy)


def _shift(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    params, view = toy_params(seed), toy_view(seed)
    shifted = params | {"bias": params["bias"] + 3.0}
    plain, _ = outcome(guidance, params, view)
    moved, _ = outcome(guidance, shifted, view)
    rule = "a constant added to all logits must not change the distribution"
    remedy = "measure logits from their largest, or use log-probabilities"
    _same_distribution(plain, moved, rule, remedy)


def _permutation(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    params, view = toy_params(seed), toy_view(seed)
    order = np.random.default_rng(seed + 1).permutation(params["input"].shape[0])
    renamed = params | {name: params[name][order] for name in ("input", "output", "bias")}
    new_id = np.argsort(order)
    other = view.replace(
        tokens=jnp.asarray(new_id)[view.tokens].astype(jnp.int32),
        mask_id=jnp.int32(new_id[view.mask_id]),
    )
    plain, _ = outcome(guidance, params, view)
    twin = permute(guidance, new_id) if permute else guidance
    moved, _ = outcome(twin, renamed, other)
    rule = "renaming the tokens must rename the distribution"
    remedy = "pass permute= if the guidance names token ids"
    _same_distribution(plain[..., order], moved, rule, remedy)


def _finite(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    params, view = toy_params(seed), toy_view(seed)
    column = jnp.arange(view.tokens.shape[1])[None, :]
    banned = params["bias"].at[: params["bias"].shape[0] // 2].set(LOWEST)
    cases = {
        "logits of -1e30": (params | {"bias": banned}, view),
        "all rows equal": (params | {"scale": jnp.float32(0)}, view),
        "one open position": (params, view.replace(open=view.open & (column == column.size - 1))),
        "no open position": (params, view.replace(open=jnp.zeros_like(view.open))),
        "a row of padding": (params, view.replace(attend=view.attend.at[0].set(False))),
    }
    for name, (p, v) in cases.items():
        guided, _ = outcome(guidance, p, v)
        finite = jnp.all(jnp.isfinite(jax.nn.softmax(guided)))
        remedy = "divide and take logarithms of nothing that may be 0"
        _hold(finite, "probabilities must be finite", f"NaN or infinity with {name}", remedy)


def _traces(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    view = toy_view(seed)

    def other(leaf):
        return leaf * 0.9 if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf

    programs: Callable[[], int] = getattr(outcome, "_cache_size")  # noqa: B009, not public
    outcome(guidance, toy_params(seed), view)
    before = programs()
    outcome(jax.tree.map(other, guidance), toy_params(seed + 1), view)
    rule, remedy = "other numbers must not compile another program", "keep numbers in leaves"
    _hold(programs() == before, rule, "one more", remedy)


def _batch(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    """A row alone, or where samples see each other the samples of one prompt."""
    params, view = toy_params(seed), toy_view(seed)
    together, _ = outcome(guidance, params, view)
    rows = view.samples if guidance.couples_samples else 1
    alone = jax.tree.map(lambda x: x[:rows] if x.ndim else x, view).replace(samples=rows)
    single, _ = outcome(guidance, params, alone)
    rule = "a row must not depend on other rows of its batch"
    remedy = "look at one row at a time, or declare couples_samples if samples of a prompt are "
    remedy += "meant to see each other"
    if guidance.couples_samples:
        rule, remedy = "a row must not depend on rows of other prompts", "keep prompts apart"
    _same_distribution(together[:rows], single, rule, remedy)


LAWS: dict[str, Callable[[Guidance, int, Permute | None], None]] = {
    "shapes": _shapes,
    "closed": _closed,
    "shift": _shift,
    "permutation": _permutation,
    "finite": _finite,
    "traces": _traces,
    "batch": _batch,
}
"""Each law raises AssertionError when a guidance breaks it."""


def check_guidance(
    guidance: Guidance,
    *,
    seed: int = 0,
    permute: Permute | None = None,
    skip: Iterable[str] = (),
) -> None:
    """Runs our laws on a guidance of yours; raises AssertionError naming the broken one.

    >>> import sake_jax as sj
    >>> capped = sj.transform(lambda logits, ctx: jnp.minimum(logits, 2.0))
    >>> check_guidance(capped)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: law 'shift' is broken: a constant added to all logits must not change ...

    Args:
      guidance: what to check.
      seed: of the random scenes it is checked on.
      permute: `(guidance, new_id) -> guidance` for guidances that name token ids: the same
        guidance after token i was renamed new_id[i].
      skip: names from `LAWS` that are not meant to hold.
    """
    for name, law in LAWS.items():
        if name in skip:
            continue
        try:
            law(guidance, seed, permute)
        except AssertionError as error:
            raise AssertionError(f"law {name!r} is broken: {error}") from error
