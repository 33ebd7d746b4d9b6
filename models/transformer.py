"""The transformer: LLaDA, LLaDA-MoE and Dream read both ways; Llama, Qwen and GPT-2 are causal."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax import Array

from sake_jax.models.attention import (
    Attention,
    AttentionInput,
    KVCache,
    frequencies,
    rotary_angles,
)
from sake_jax.models.config import TransformerConfig
from sake_jax.models.inputs import NetworkInput, NetworkOutput
from sake_jax.models.layers import LayerNorm, RMSNorm, Table, scan_layers, stack
from sake_jax.models.mlp import Experts, GatedMLP, GeluMLP


def make_norm(c: TransformerConfig) -> RMSNorm | LayerNorm:
    return RMSNorm(c.D, c.eps) if c.norm == "rms" else LayerNorm(c.D, c.eps, bias=c.bias)


def make_mlp(c: TransformerConfig, rngs: nnx.Rngs) -> GatedMLP | GeluMLP | Experts:
    if c.experts:
        return Experts(c, rngs=rngs)
    if c.mlp == "gated":
        return GatedMLP(c, rngs=rngs)
    return GeluMLP(c.D, c.F, bias=c.bias, quantized=c.quantized, rngs=rngs)


class Block(nnx.Module):
    """x + attention(norm x), then x + mlp(norm x)."""

    def __init__(self, c: TransformerConfig, *, rngs: nnx.Rngs):
        self.attention_norm = make_norm(c)
        self.attention = Attention(c, rngs=rngs)
        self.mlp_norm = make_norm(c)
        self.mlp = make_mlp(c, rngs)

    def __call__(
        self, x: Array, inputs: AttentionInput, cache: KVCache | None, layer: Array
    ) -> tuple[Array, KVCache | None]:
        mixed, cache = self.attention(self.attention_norm(x), inputs, cache, layer)
        x = x + mixed
        return x + self.mlp(self.mlp_norm(x)), cache


class Transformer(nnx.Module):
    """Tokens in, the head's input out."""

    def __init__(self, c: TransformerConfig, *, rngs: nnx.Rngs):
        self.config = c
        self.input = Table(c.V, c.D, axes=("vocab", "embed"), rngs=rngs)
        if c.rope_theta is None:
            self.places = Table(c.context, c.D, axes=(None, "embed"), rngs=rngs)
        self.blocks = stack(lambda rngs: Block(c, rngs=rngs), c.N, rngs)
        self.norm = make_norm(c)
        if not c.tied:
            self.output = Table(c.V, c.D, axes=("vocab", "embed"), rngs=rngs)

    def __call__(self, inputs: NetworkInput, layers: Any = None) -> NetworkOutput:
        """`layers`: the parameters of each layer, where they were taken apart before a loop."""
        c = self.config
        x = self.input(inputs.computed(inputs.tokens))
        rotary = None
        if c.rope_theta is None:
            x = x + self.places(inputs.computed(inputs.positions))
        else:
            rotary = rotary_angles(inputs.positions, frequencies(c.rope_theta, c.head_dim))
        visible = self._visible(inputs)
        columns = AttentionInput(rotary, visible, inputs.computed_start, jnp.int32(0))
        x, cache = scan_layers(self.blocks, x, columns, inputs.cache, layers)
        features = self.norm(x)
        return NetworkOutput(features, features, cache)

    def _visible(self, inputs: NetworkInput) -> Array:
        """(B, T, L) which columns each computed one looks at."""
        (batch, columns), width = inputs.tokens.shape, inputs.computed_width
        visible = jnp.broadcast_to(inputs.attend[:, None, :], (batch, width, columns))
        if not self.config.causal:
            return visible
        own = inputs.computed_start + jnp.arange(width)
        return visible & (jnp.arange(columns)[None, :] <= own[:, None])[None]
