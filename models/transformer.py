"""The transformer: LLaDA, LLaDA-MoE and Dream read both ways; SDAR block by block; Llama, Qwen and
GPT-2 are causal."""

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
from sake_jax.models.experts import Experts
from sake_jax.models.inputs import NetworkInput, NetworkOutput
from sake_jax.models.layers import LayerNorm, Layers, RMSNorm, Table, scan_layers, stack
from sake_jax.models.mlp import GatedMLP, GeluMLP
from sake_jax.models.visible import side_by_side, visible_keys


def make_norm(c: TransformerConfig) -> RMSNorm | LayerNorm:
    return RMSNorm(c.D, c.eps) if c.norm == "rms" else LayerNorm(c.D, c.eps, bias=c.bias)


def make_mlp(c: TransformerConfig, rngs: nnx.Rngs) -> GatedMLP | GeluMLP | Experts:
    if c.experts:
        return Experts(c, rngs=rngs)
    if c.mlp == "gated":
        return GatedMLP(c, c.F, rngs=rngs)
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
        if c.dense_layers:
            self.first = stack(lambda rngs: Block(c.dense, rngs=rngs), c.dense_layers, rngs)
        self.blocks = stack(lambda rngs: Block(c, rngs=rngs), c.N - c.dense_layers, rngs)
        self.norm = make_norm(c)
        if not c.tied:
            self.output = Table(c.V, c.D, axes=("vocab", "embed"), rngs=rngs)

    def __call__(self, inputs: NetworkInput, layers: Layers) -> NetworkOutput:
        """`layers`: the parameters of each layer of a stack, where they were taken apart."""
        c = self.config
        beside = inputs.clean is not None
        if beside:
            inputs = side_by_side(inputs)
        x = inputs.perturbed(self.input(inputs.computed(inputs.tokens)))
        rotary = None
        if c.rope_theta is None:
            x = x + self.places(inputs.computed(inputs.positions))
        else:
            turned = frequencies(c.rope_theta, c.rotary_dim or c.head_dim)
            rotary = rotary_angles(inputs.positions, turned)
        keys = visible_keys(c, inputs, inputs.positions, inputs.attend)
        columns = AttentionInput(rotary, keys, inputs.computed_start, jnp.int32(0))
        cache = inputs.cache
        if c.dense_layers:
            x, cache = scan_layers(self.first, x, columns, cache, layers.get("first"))
        x, cache = scan_layers(
            self.blocks, x, columns, cache, layers.get("blocks"), first=c.dense_layers
        )
        if beside:  # the clean half is only there to be looked at
            x = jnp.split(x, 2, axis=1)[0]
        features = self.norm(x)
        return NetworkOutput(features, features, cache)
