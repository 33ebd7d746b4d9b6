"""What tells a model from others."""

import math
import zlib

import jax
import jax.numpy as jnp
from jax import Array

from sake_jax.generation.settings import describe_settings
from sake_jax.models import LanguageModel
from sake_jax.sharding import to_host
from sake_jax.typing import Params


def model_identity(lm: LanguageModel) -> dict:
    """What tells a model from others: its config, its dtype, and some of its numbers.

    >>> import sake_jax as sj
    >>> model_identity(sj.load("tinystories"))["dtype"]
    'float32'
    """
    first = [leaf.reshape(-1)[:64].tobytes() for leaf in to_host(_corners(lm.params))]
    return {
        "config": describe_settings(lm.config, "config"),
        "dtype": lm.dtype,
        "checksum": zlib.crc32(b"".join(first)),
    }


def _corners(params: Params) -> list[Array]:
    """Of each array a part that holds its first 64 numbers; not flat, which would gather it."""

    def corner(leaf: Array) -> Array:
        leaf = jnp.asarray(leaf)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):  # a module may carry one
            leaf = jax.random.key_data(leaf)
        after = [math.prod(leaf.shape[axis + 1 :]) for axis in range(leaf.ndim)]
        return leaf[tuple(slice(-(-64 // max(count, 1))) for count in after)]

    return [corner(leaf) for leaf in jax.tree.leaves(params)]
