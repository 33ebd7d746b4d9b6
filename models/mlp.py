"""Dense MLPs: what follows attention in a layer without experts."""

import jax
from flax import nnx
from jax import Array

from sake_jax.models.config import EncoderDecoderConfig, TransformerConfig
from sake_jax.models.layers import Linear

Config = TransformerConfig | EncoderDecoderConfig


def activate(name: str, x: Array) -> Array:
    """SiLU, or the tanh form of GELU."""
    return jax.nn.silu(x) if name == "silu" else jax.nn.gelu(x, approximate=True)


class GatedMLP(nnx.Module):
    """down(silu(gate x) * up x), or with GELU."""

    def __init__(self, c: Config, F: int, *, rngs: nnx.Rngs):
        options = {"bias": c.bias, "quantized": c.quantized, "rngs": rngs}
        self.activation = c.activation
        self.gate = Linear(c.D, F, axes=("mlp", "embed"), **options)
        self.up = Linear(c.D, F, axes=("mlp", "embed"), **options)
        self.down = Linear(F, c.D, axes=("embed", "mlp"), **options)

    def __call__(self, x: Array) -> Array:
        return self.down(activate(self.activation, self.gate(x)) * self.up(x))


class GeluMLP(nnx.Module):
    """down(gelu(up x)), the tanh form of GELU."""

    def __init__(self, D: int, F: int, *, bias: bool, quantized: bool, rngs: nnx.Rngs):
        options = {"bias": bias, "quantized": quantized, "rngs": rngs}
        self.up = Linear(D, F, axes=("mlp", "embed"), **options)
        self.down = Linear(F, D, axes=("embed", "mlp"), **options)

    def __call__(self, x: Array) -> Array:
        return self.down(jax.nn.gelu(self.up(x), approximate=True))
