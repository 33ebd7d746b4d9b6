"""Canvases from prompts."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from sake_jax.checks import number, one_of, require
from sake_jax.core import Canvas


def canvas(
    prompts: Sequence[Sequence[int]],
    length: int,
    *,
    mask_id: int,
    pad_id: int | None = None,
    samples: int = 1,
    positions: str = "columns",
) -> Canvas:
    """Prompts of token ids, padded on the left, with `length` open columns after them.

    Positions count "columns" from the left edge, padding included, as LLaDA's do, or "tokens"
    from the first given one, as Dream's do; `lm.config.positions` says which.

        >>> canvas([[5, 6], [7]], 3, mask_id=9, pad_id=0).tokens.tolist()
        [[5, 6, 9, 9, 9], [0, 7, 9, 9, 9]]
    """
    number("length", length, at_least=1)
    number("samples", samples, at_least=1)
    require(
        len(prompts) > 0, "prompts must hold at least one prompt", prompts, "an empty one is []"
    )
    longest = max(len(prompt) for prompt in prompts)
    given = np.zeros((len(prompts), longest), bool)
    tokens = np.full((len(prompts), longest), mask_id if pad_id is None else pad_id, np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = np.asarray(prompt, np.int32)
        given[row, longest - len(prompt) :] = True

    def complete(prompt_part: np.ndarray, value) -> jnp.ndarray:
        rest = np.full((len(prompts), length), value, prompt_part.dtype)
        return jnp.asarray(np.repeat(np.concatenate([prompt_part, rest], axis=1), samples, axis=0))

    one_of("positions", positions, ("columns", "tokens"))
    counted = np.tile(np.arange(longest + length, dtype=np.int32), (len(prompts), 1))
    if positions == "tokens":
        pads = longest - given.sum(axis=1, keepdims=True)
        counted = np.where(counted < pads, 1, counted - pads).astype(np.int32)
    return Canvas(
        tokens=complete(tokens, mask_id),
        open=complete(np.zeros_like(given), True),
        prompt=complete(given, False),
        attend=complete(given, True),
        positions=jnp.asarray(np.repeat(counted, samples, axis=0)),
        prompt_id=jnp.asarray(np.repeat(np.arange(len(prompts)), samples)),
        sample_id=jnp.asarray(np.tile(np.arange(samples), len(prompts))),
        start=longest,
        samples=samples,
        mask_id=jnp.int32(mask_id),
    )
