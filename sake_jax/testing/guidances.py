"""Laws that every guidance obeys."""

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np

from sake_jax.core import LOWEST, Guidance
from sake_jax.guidance.compose import chain, guide, last_word
from sake_jax.testing.toy import toy_context, toy_params, toy_view
from sake_jax.testing.verdicts import alike, close, hold, obey, same_distribution
from sake_jax.typing import Logits, Params
from sake_jax.view import View

Permute = Callable[[Guidance, np.ndarray], Guidance]


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


def _shapes(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    def one_step(guidance, params, view):
        ctx = toy_context(params, view)
        before = guidance.init(ctx)
        return before, guide(guidance, before, ctx)

    before, guided = jax.eval_shape(one_step, chain(guidance), toy_params(seed), toy_view(seed))
    rule = "guided logits must have the shape and dtype of the base ones"
    alike(guided.base, guided.logits, rule, "cast or reshape what `apply` returns")
    rule, remedy = "the state after a step must be like that of `init`", "return the same arrays"
    alike(before, guided.state, rule, remedy)


def _closed(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    view = toy_view(seed)
    guided, base = outcome(guidance, toy_params(seed), view)
    closed = ~np.asarray(view.window(view.open & view.attend))
    rule, remedy = "closed and padded positions must keep their logits", "change those of ctx.open"
    close(guided[closed], base[closed], 1e-5, rule, "logits", remedy)


def _shift(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    params, view = toy_params(seed), toy_view(seed)
    shifted = params | {"bias": params["bias"] + 3.0}
    plain, _ = outcome(guidance, params, view)
    moved, _ = outcome(guidance, shifted, view)
    rule = "a constant added to all logits must not change the distribution"
    remedy = "measure logits from their largest, or use log-probabilities"
    same_distribution(plain, moved, rule, remedy)


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
    same_distribution(plain[..., order], moved, rule, remedy)


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
        hold(finite, "probabilities must be finite", f"NaN or infinity with {name}", remedy)


def _traces(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    view = toy_view(seed)

    def other(leaf):
        return leaf * 0.9 if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf

    programs: Callable[[], int] = getattr(outcome, "_cache_size")  # noqa: B009, not public
    outcome(guidance, toy_params(seed), view)
    before = programs()
    outcome(jax.tree.map(other, guidance), toy_params(seed + 1), view)
    rule, remedy = "other numbers must not compile another program", "keep numbers in leaves"
    hold(programs() == before, rule, "one more", remedy)


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
    same_distribution(together[:rows], single, rule, remedy)


def _padding(guidance: Guidance, seed: int, permute: Permute | None) -> None:
    """What stands at padding, and what a network makes of it, is nobody's business."""
    params, view = toy_params(seed), toy_view(seed)
    # The scene's first row has padding for sure.
    attend = view.attend.at[0, 0].set(False)
    view = view.replace(attend=attend, prompt=view.prompt & attend)
    other = view.replace(tokens=jnp.where(attend, view.tokens, 1 + view.tokens % 3))
    one, _ = outcome(guidance, params, view)
    two, _ = outcome(guidance, params, other)
    part = np.asarray(view.window(view.open & attend))
    rule = "what stands at padding must not change a distribution"
    remedy = "weigh rows by view.attend, or in an objective by peers.weight"
    same_distribution(one[part], two[part], rule, remedy)


LAWS: dict[str, Callable[[Guidance, int, Permute | None], None]] = {
    "shapes": _shapes,
    "closed": _closed,
    "shift": _shift,
    "permutation": _permutation,
    "finite": _finite,
    "traces": _traces,
    "batch": _batch,
    "padding": _padding,
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
    obey(LAWS, skip, guidance, seed, permute)
