"""Canvases from prompts."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from sake_jax.checks import number, require
from sake_jax.core import Canvas


def canvas(
    prompts: Sequence[Sequence[int]],
    length: int,
    *,
    mask_id: int,
    pad_id: int | None = None,
    samples: int = 1,
) -> Canvas:
    """Prompts of token ids, padded on the left, with `length` open columns after them.

    Positions count from the left edge of the canvas, padding included, as LLaDA's do.

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

    rows = len(prompts) * samples
    columns = np.arange(longest + length, dtype=np.int32)[None, :]
    return Canvas(
        tokens=complete(tokens, mask_id),
        open=complete(np.zeros_like(given), True),
        prompt=complete(given, False),
        attend=complete(given, True),
        positions=jnp.asarray(np.repeat(columns, rows, axis=0)),
        prompt_id=jnp.asarray(np.repeat(np.arange(len(prompts)), samples)),
        sample_id=jnp.asarray(np.tile(np.arange(samples), len(prompts))),
        start=longest,
        samples=samples,
        mask_id=jnp.int32(mask_id),
    )
