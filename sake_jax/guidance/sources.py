"""Sources: what the row of a position is, and so what diversity guidance compares.

A source of your own is a function `(ctx, logits, table) -> (rows, takes_part)`, called once the
logits of the window are known. `table` is the vocabulary's embedding that the guidance projects on;
rows are (B, L, D), as wide as the features, and positions where `takes_part` (B, L) is False
neither repel nor are repelled.

>>> def emphasised(ctx, logits, table):  # confident positions count more
...     rows, takes_part = predicted(ctx, logits, table)
...     return 2.0 * rows, takes_part
>>> import sake_jax as sj
>>> guidance = sj.sake(1.0, source=emphasised)
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.checks import require
from sake_jax.core import Context
from sake_jax.precision import precise, product
from sake_jax.typing import Features, Flags, Logits, Rows

Source = Callable[[Context, Logits | None, Array], tuple[Features, Flags]]


@dataclasses.dataclass(frozen=True)
class EarlySource:
    """A source that needs no logits: its signal can leave through the head with the features.

    It is called with `logits=None` then.
    """

    rows: Source

    def __call__(self, ctx: Context, logits: Logits | None, table: Array) -> tuple[Features, Flags]:
        return self.rows(ctx, logits, table)


def hidden(ctx: Context, logits: Logits | None, table: Array) -> tuple[Features, Flags]:
    """The head's input, the last hidden state."""
    return precise(ctx.features), ctx.view.attend


def input_embedding(ctx: Context, logits: Logits | None, table: Array) -> tuple[Features, Flags]:
    """The embedding of the token that stands there, the mask token included."""
    return precise(embedding(ctx, "input")[ctx.view.tokens]), ctx.view.attend


def expected(ctx: Context, logits: Logits | None, table: Array) -> tuple[Features, Flags]:
    """softmax(z) E where a position is open, the embedding of its token elsewhere."""
    assert logits is not None, "a source that is not early is asked after the head"
    return _with_predictions(ctx, product("bwv,vd->bwd", jax.nn.softmax(logits), table), table)


def predicted(ctx: Context, logits: Logits | None, table: Array) -> tuple[Features, Flags]:
    """The embedding of the likeliest token where a position is open, of its token elsewhere."""
    assert logits is not None, "a source that is not early is asked after the head"
    return _with_predictions(ctx, precise(table[jnp.argmax(logits, axis=-1)]), table)


SOURCES: dict[str, Source] = {
    "hidden": EarlySource(hidden),
    "expected": expected,
    "predicted": predicted,
    "input": EarlySource(input_embedding),
}
"""Ours, by their short names."""


def embedding(ctx: Context, name: str) -> Array:
    """The vocabulary's table of that name, "input" or "output"; it must be as wide as features."""
    table, width = getattr(ctx.tables, name), ctx.features.shape[-1]
    rule = f"the {name} table must be as wide as the features ({width})"
    require(table.shape[1] == width, rule, table.shape, "choose another table or source")
    return table


def _with_predictions(ctx: Context, window_rows: Rows, table: Array) -> tuple[Features, Flags]:
    """Embeddings of all tokens, with these rows at the window's open positions.

    Open positions outside the window have no prediction yet, so they take no part.
    """
    view = ctx.view
    everyone = precise(table[view.tokens])
    window = jnp.where(ctx.open[..., None], window_rows, view.window(everyone))
    inside = jnp.ones((view.tokens.shape[0], view.width), bool)
    known = view.put(~view.open, inside)
    return view.put(everyone, window), view.attend & known
