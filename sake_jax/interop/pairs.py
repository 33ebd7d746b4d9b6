"""A guidance as two pure functions, the form of optax and its relatives."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from sake_jax.core import Guidance
from sake_jax.guidance.arrays import first_state, guided_logits
from sake_jax.typing import GuidanceState, Logits


class InitUpdate(NamedTuple):
    """Two pure functions; see `init_update`.

    >>> pair = InitUpdate(init=dict, update=lambda state, **arrays: (None, state))
    >>> pair.update(pair.init())
    (None, {})
    """

    init: Callable[..., GuidanceState]
    """`init(**arrays) -> state`"""
    update: Callable[..., tuple[Logits, GuidanceState]]
    """`update(state, **arrays) -> (logits, state)`"""


def init_update(guidance: Guidance) -> InitUpdate:
    """A guidance as `init(**arrays) -> state` and `update(state, **arrays) -> (logits, state)`.

    The arrays are those of `sake_jax.guided_logits`. Both are pure, so that they may be jitted,
    scanned, mapped and differentiated; the state is what a loop carries.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import sake_jax as sj
    >>> table = jax.random.normal(jax.random.key(0), (5, 3))
    >>> arrays = {"tokens": jnp.full((1, 4), 4), "open": jnp.ones((1, 4), bool)}
    >>> arrays |= {"features": table[None, :4], "tables": sj.Tables(table, table)}
    >>> arrays |= {"head": lambda rows: rows @ table.T}
    >>> init, update = init_update(sj.sake(1.0))
    >>> logits, state = update(init(**arrays), **arrays, progress=0.5)
    >>> logits.shape
    (1, 4, 5)
    """

    def update(state: GuidanceState, **arrays: Any) -> tuple[Logits, GuidanceState]:
        return guided_logits(guidance, state=state, **arrays)

    return InitUpdate(functools.partial(first_state, guidance), update)
