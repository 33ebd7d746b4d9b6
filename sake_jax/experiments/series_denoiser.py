"""The model of arithmetic series as the library sees models."""

from typing import Any, ClassVar

import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.core import Tables, View
from sake_jax.experiments.series import MASK_ID, Config, features
from sake_jax.node import Node
from sake_jax.typing import Features, Logits, Params, Rows

UNTRAINED = -1e9
"""What is added to the mask token's logit, which no loss has seen: it is never drawn."""


class SeriesDenoiser(Node):
    """Rows are the final normed states, the head is the output table."""

    affine: ClassVar[bool] = True
    config: Config = struct.field(pytree_node=False, default=Config())

    def read(self, params: Params, view: View, cache: Any) -> tuple[Features, Any]:
        return features(self.config, params, view.tokens), cache

    def head(self, params: Params, rows: Rows) -> Logits:
        return jnp.einsum("bwd,vd->bwv", rows, params["output"]) + self.bias()[None, None, :]

    def tables(self, params: Params) -> Tables:
        return Tables(params["input"], params["output"], self.bias())

    def bias(self) -> Array:
        """(V,) so that the mask token is never drawn."""
        return jnp.zeros(self.config.vocab, jnp.float32).at[MASK_ID].set(UNTRAINED)
