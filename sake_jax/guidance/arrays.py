"""Guidance from bare arrays, for loops that are not ours."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from sake_jax.checks import number, require
from sake_jax.core import Context, Guidance, Tables
from sake_jax.guidance.compose import guide, last_word
from sake_jax.typing import Features, Flags, GuidanceState, Logits, Number, Rows, Tokens
from sake_jax.view import Canvas, View, read_view


def guided_logits(
    guidance: Guidance,
    *,
    tokens: Tokens,
    features: Features,
    head: Callable[[Rows], Logits],
    tables: Tables,
    open: Flags,
    progress: Number = 0.0,
    state: GuidanceState = None,
    attend: Flags | None = None,
    positions: Tokens | None = None,
    prompt: Flags | None = None,
    mask_id: Any = None,
    cond: Array | None = None,
    samples: int = 1,
    affine: bool = True,
    read: Callable[..., Features] | None = None,
) -> tuple[Logits, GuidanceState]:
    """Guided logits of all columns, and the guidance's state for the next step.

    For a model and a loop of your own: inside `jit`, `scan`, `vmap` and `grad`. Closed and padded
    positions keep the head's logits.

    >>> import sake_jax as sj
    >>> rows, table = jnp.eye(4)[None, :3], jnp.eye(4)
    >>> logits, state = guided_logits(
    ...     sj.chain(sj.sake(1.0), sj.temperature(0.5)),
    ...     tokens=jnp.array([[1, 3, 3]]),
    ...     open=jnp.array([[False, True, True]]),
    ...     features=rows,
    ...     head=lambda rows: rows @ table.T,
    ...     tables=sj.Tables(table, table),
    ... )
    >>> logits.shape  # rows, columns, vocabulary
    (1, 3, 4)

    Args:
      guidance: any guidance, a chain or not.
      tokens: (B, L) as they are now.
      features: (B, L, D) the head's input, one row per column, aligned with the token it predicts.
      head: from feature rows to logits.
      tables: the vocabulary's embeddings on both ends of the model.
      open: (B, L) which positions are still to be written.
      progress: from 0 at the first step towards 1, for schedules; one number, or one for each row.
      state: what the call before returned, or `first_state`; None at the first step.
      attend: (B, L) False at padding, which takes no part; everything by default.
      positions: (B, L) where columns stand; counted from the left by default.
      prompt: (B, L) given by the user, for guidances that take it away; what is not open, by
        default.
      mask_id: of the mask token, for guidances that put it somewhere.
      cond: (B,) labels, for guidances that take them away.
      samples: rows of one prompt, which stand together, for guidances that compare samples.
      affine: whether `head` is rows @ tables.output.T + bias, so that guidance may pass through it.
      read: from other tokens to their features, for guidances that ask the model again
        (`classifier_free`). It also gets `attend`, `positions`, `time` and `cond` if its
        parameters have these names.
    """
    arrays = {"tokens": tokens, "features": features, "head": head, "tables": tables, "open": open}
    more = {"attend": attend, "positions": positions, "prompt": prompt, "mask_id": mask_id}
    rest = {"cond": cond, "samples": samples, "affine": affine, "read": read}
    _check(guidance)
    ctx = _context(**arrays, progress=progress, **more, **rest)
    before = guidance.init(ctx) if state is None else state
    guided = guide(guidance, before, ctx)
    return last_word(guidance, guided, guided.logits, ctx), guided.state


def first_state(guidance: Guidance, **arrays: Any) -> GuidanceState:
    """The state of a guidance before the first step: what a `scan` over `guided_logits` carries.

    >>> import sake_jax as sj
    >>> arrays = {"tokens": jnp.zeros((1, 3), int), "open": jnp.ones((1, 3), bool)}
    >>> arrays |= {"features": jnp.zeros((1, 3, 4)), "tables": sj.Tables(jnp.eye(4), jnp.eye(4))}
    >>> state = first_state(sj.sake(1.0), **arrays, head=lambda rows: rows)

    Args:
      guidance: any guidance.
      **arrays: as for `guided_logits`. Of `features` only the shape matters.
    """
    _check(guidance)
    return guidance.init(_context(**arrays))


def _check(guidance: Guidance) -> None:
    rule, remedy = "guidance must be a Guidance", "build it with a sake_jax builder"
    require(isinstance(guidance, Guidance), rule, guidance, remedy)


def _context(
    *,
    tokens: Tokens,
    features: Features,
    head: Callable[[Rows], Logits],
    tables: Tables,
    open: Flags,
    progress: Number = 0.0,
    attend: Flags | None = None,
    positions: Tokens | None = None,
    prompt: Flags | None = None,
    mask_id: Any = None,
    cond: Array | None = None,
    samples: int = 1,
    affine: bool = True,
    read: Callable[..., Features] | None = None,
) -> Context:
    """What a guidance sees of bare arrays: the window is the whole canvas."""
    batch, columns = tokens.shape
    rule, remedy = "features must have a row for each column", "pass the head's input"
    require(features.shape[:2] == tokens.shape, rule, features.shape, remedy)
    for name, flags in (("open", open), ("attend", attend), ("prompt", prompt)):
        if flags is not None:
            rule = f"{name} must say yes or no of each column, as tokens {tokens.shape}"
            require(
                flags.shape == tokens.shape, rule, flags.shape, "make it of the shape of tokens"
            )
    number("progress", progress, at_least=0, at_most=1, schedule=False)
    rule, remedy = "samples must divide the rows", "rows of one prompt stand together"
    require(samples >= 1 and batch % samples == 0, rule, (batch, samples), remedy)
    attend = jnp.ones(tokens.shape, bool) if attend is None else attend
    counted = jnp.broadcast_to(jnp.arange(columns), tokens.shape)
    progress = jnp.broadcast_to(jnp.asarray(progress, jnp.float32), (batch,))
    canvas = Canvas(
        tokens=tokens,
        open=open,
        prompt=~open & attend if prompt is None else prompt,
        attend=attend,
        positions=counted if positions is None else positions,
        prompt_id=jnp.arange(batch) // samples,
        sample_id=jnp.arange(batch) % samples,
        mask_id=mask_id,
        cond=cond,
        samples=samples,
    )
    view = View(
        canvas=canvas,
        window_start=jnp.int32(0),
        time=1 - progress,
        next_time=jnp.zeros_like(progress),
        progress=progress,
        quota=jnp.sum(open & attend, axis=1),
        width=columns,
    )

    def read_again(other: View, cache: Any) -> tuple[Features, Any]:
        rule, remedy = "this guidance asks the model again", "pass read="
        require(read is not None, rule, "no read", remedy)
        assert read is not None
        return read_view(read, other), cache

    return Context(
        view=view,
        features=features,
        tables=tables,
        head=head,
        read=read_again,
        log_q=lambda logits: logits,
        affine=affine,
    )
