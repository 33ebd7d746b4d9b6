"""Canvases from prompts."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from sake_jax.checks import number, one_of, require
from sake_jax.view import Canvas

HOLE = -1
"""What stands for a token to fill in where there is no mask token."""


def canvas(
    prompts: Sequence[Sequence[int]],
    length: int,
    *,
    mask_id: int | None,
    pad_id: int | None = None,
    samples: int = 1,
    positions: str = "columns",
    align: int = 1,
    infill: bool = False,
    room: int = 0,
) -> Canvas:
    """Prompts of token ids, padded on the left, with `length` columns to write after them.

        >>> canvas([[5, 6], [7]], 3, mask_id=9, pad_id=0).tokens.tolist()
        [[5, 6, 9, 9, 9], [0, 7, 9, 9, 9]]

    Args:
      prompts: token ids, [] for an empty prompt.
      length: columns to write, or all columns for `infill`.
      mask_id: the token that stands for noise; None for models without one.
      pad_id: what padding holds; nobody looks at it.
      samples: rows for each prompt.
      positions: count "columns" from the left edge, padding included, as LLaDA's do, or "tokens"
        from the first given one, as Dream's do; `lm.config.positions` says which.
      align: for block diffusion, its block. Prompts begin and the columns to write begin at
        multiples of it; the rest of a prompt that fills no block stands in the first one.
      infill: writes the mask tokens inside the prompts, wherever they are, and nothing else. For
        models without one, -1 stands for a token that is missing.
      room: columns for prompts, if more than the longest needs: then other prompts fit the same
        compiled program.
    """
    number("length", length, at_least=1)
    number("samples", samples, at_least=1)
    number("align", align, at_least=1)
    one_of("positions", positions, ("columns", "tokens"))
    rule = "prompts must hold at least one prompt"
    require(len(prompts) > 0, rule, prompts, "an empty one is []")
    given_ids = [np.asarray(prompt, np.int32).reshape(-1) for prompt in prompts]
    filler, hole = (0, HOLE) if mask_id is None else (mask_id, mask_id)
    _check(given_ids, length, hole, infill)

    before = [0 if infill else len(prompt) // align * align for prompt in given_ids]
    start = 0 if infill else max(*before, -(-room // align) * align)
    shape = (len(prompts), start + length)
    tokens = np.full(shape, filler, np.int32)
    tokens[:, :start] = filler if pad_id is None else pad_id
    given, attend = np.zeros(shape, bool), np.zeros(shape, bool)
    first = np.zeros((len(prompts), 1), np.int32)
    for row, prompt in enumerate(given_ids):
        at = (length - len(prompt)) // align * align if infill else start - before[row]
        end = at + len(prompt)
        missing = prompt == hole
        tokens[row, at:end] = np.where(missing, filler, prompt)
        given[row, at:end] = ~missing
        attend[row, at : end if infill else None] = True
        first[row] = at

    counted = np.tile(np.arange(shape[1], dtype=np.int32), (len(prompts), 1))
    if positions == "tokens":
        counted = np.where(counted < first, 1, counted - first).astype(np.int32)
    rows = lambda part: jnp.asarray(np.repeat(part, samples, axis=0))  # noqa: E731
    return Canvas(
        tokens=rows(tokens),
        open=rows(attend & ~given),
        prompt=rows(given),
        attend=rows(attend),
        positions=rows(counted),
        prompt_id=rows(np.arange(len(prompts))),
        sample_id=jnp.asarray(np.tile(np.arange(samples), len(prompts))),
        generation_start=start,
        samples=samples,
        infill=infill,
        mask_id=None if mask_id is None else jnp.int32(mask_id),
    )


def _check(prompts: Sequence[np.ndarray], length: int, hole: int, infill: bool) -> None:
    for index, prompt in enumerate(prompts):
        holes = int(np.sum(prompt == hole))
        if infill:
            rule = f"prompt {index} must have mask tokens to fill in"
            require(holes > 0, rule, f"none of token {hole}", "put some where text is missing")
            rule = f"prompt {index} must fit into length, {length} columns"
            require(len(prompt) <= length, rule, len(prompt), "raise length, or cut the prompt")
        else:
            rule = f"prompt {index} must have no mask tokens (id {hole})"
            require(holes == 0, rule, holes, "pass infill=True to have them written")
