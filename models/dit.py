"""The diffusion transformer (DiT): MDLM, BD3LM, UDLM, SEDD and RADD.

Every layer is shifted, scaled and gated by an embedding of the noise level (adaLN). Where a config
has no `cond_dim`, as RADD's, there is no such embedding, and layers are plain.
"""

import math

import jax
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
from sake_jax.models.config import DiTConfig
from sake_jax.models.inputs import NetworkInput, NetworkOutput
from sake_jax.models.layers import LayerNorm, Layers, Linear, Table, constant, scan_layers, stack
from sake_jax.models.mlp import GeluMLP
from sake_jax.models.visible import key_columns, side_by_side, visible_keys

WAVES = 128
"""Frequencies of the noise level's embedding."""


def modulate(x: Array, shift: Array, scale: Array) -> Array:
    return x * (1 + scale[:, None, :]) + shift[:, None, :]


def norm(c: DiTConfig) -> LayerNorm:
    """A modulated norm gets its shift from the modulation, a plain one has a bias."""
    return LayerNorm(c.D, c.eps, bias=not c.cond_dim)


def modulation(c: DiTConfig, parts: int, rngs: nnx.Rngs) -> Linear:
    return Linear(c.cond_dim, parts * c.D, axes=(None, None), bias=True, rngs=rngs)


class NoiseEmbedding(nnx.Module):
    """A small MLP over cosines and sines of the total noise σ."""

    def __init__(self, c: DiTConfig, *, rngs: nnx.Rngs):
        options = {"axes": (None, None), "bias": True, "rngs": rngs}
        self.first = Linear(2 * WAVES, c.cond_dim, **options)
        self.second = Linear(c.cond_dim, c.cond_dim, **options)

    def __call__(self, sigma: Array) -> Array:
        waves = jnp.exp(-math.log(10_000) * jnp.arange(WAVES, dtype=jnp.float32) / WAVES)
        angles = sigma.astype(jnp.float32)[:, None] * waves[None, :]
        wave = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)
        wave = wave.astype(self.first.kernel.dtype)
        return jax.nn.silu(self.second(jax.nn.silu(self.first(wave))))


class Block(nnx.Module):
    """Attention and MLP, each modulated before and gated after, if there is a condition."""

    def __init__(self, c: DiTConfig, *, rngs: nnx.Rngs):
        self.attention_norm = norm(c)
        self.attention = Attention(c, rngs=rngs)
        self.mlp_norm = norm(c)
        self.mlp = GeluMLP(c.D, c.F, bias=True, quantized=c.quantized, rngs=rngs)
        if c.cond_dim:
            self.modulation = modulation(c, 6, rngs)

    def __call__(
        self,
        x: Array,
        inputs: AttentionInput,
        cache: KVCache | None,
        layer: Array,
        cond: Array | None = None,
    ) -> tuple[Array, KVCache | None]:
        if cond is None:
            mixed, cache = self.attention(self.attention_norm(x), inputs, cache, layer)
            x = x + mixed
            return x + self.mlp(self.mlp_norm(x)), cache
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = jnp.split(
            self.modulation(cond), 6, axis=-1
        )
        rows = modulate(self.attention_norm(x), shift, scale)
        mixed, cache = self.attention(rows, inputs, cache, layer)
        x = x + gate[:, None, :] * mixed
        rows = modulate(self.mlp_norm(x), mlp_shift, mlp_scale)
        return x + mlp_gate[:, None, :] * self.mlp(rows), cache


class DiT(nnx.Module):
    """Tokens and a noise level in, the head's input out."""

    def __init__(self, c: DiTConfig, *, rngs: nnx.Rngs):
        self.config = c
        self.input = Table(c.V, c.D, axes=("vocab", "embed"), rngs=rngs)
        if c.cond_dim:
            self.noise = NoiseEmbedding(c, rngs=rngs)
        if c.classes:
            self.labels = Table(c.classes + 1, c.cond_dim, axes=(None, None), rngs=rngs)
        # Checkpoints store these; they are not trained.
        rotary = frequencies(10_000.0, c.head_dim)
        self.frequencies = nnx.Param(rotary, axes=(None,), exact=True)
        if c.stored_limits:
            self.lowest_noise = constant(0.0, (), (), exact=True)
            self.highest_noise = constant(1.0, (), (), exact=True)
        self.blocks = stack(lambda rngs: Block(c, rngs=rngs), c.N, rngs)
        self.norm = norm(c)
        if c.cond_dim:
            self.modulation = modulation(c, 2, rngs)
        self.output = Table(c.V, c.D, axes=("vocab", "embed"), rngs=rngs)
        self.output_bias = constant(0.0, (c.V,), ("vocab",))

    def condition(self, inputs: NetworkInput, dtype) -> Array | None:
        """(B, cond_dim) what modulates the layers: the noise level, and a label if given."""
        if not self.config.cond_dim:
            return None
        sigma = inputs.sigma
        if sigma is None or not self.config.time_conditioning:
            sigma = jnp.zeros(inputs.tokens.shape[0], jnp.float32)
        cond = self.noise(sigma)
        if inputs.cond is not None:
            cond = cond + jax.nn.silu(self.labels(inputs.cond))
        return cond.astype(dtype)

    def __call__(self, inputs: NetworkInput, layers: Layers) -> NetworkOutput:
        """`layers`: the parameters of each layer of a stack, where they were taken apart."""
        c = self.config
        beside = inputs.clean is not None
        if beside:
            inputs = side_by_side(inputs)
        x = inputs.perturbed(self.input(inputs.computed(inputs.tokens)))
        cond = self.condition(inputs, x.dtype)
        start, count = key_columns(c, inputs)
        positions, attend = jax.tree.map(
            lambda part: jax.lax.dynamic_slice_in_dim(part, start, count, axis=1),
            (inputs.positions, inputs.attend),
        )
        rotary = rotary_angles(positions, jax.lax.stop_gradient(self.frequencies[...]))
        keys = visible_keys(c, inputs, positions, attend)
        columns = AttentionInput(rotary, keys, inputs.computed_start, start)
        more = () if cond is None else (cond,)
        x, cache = scan_layers(self.blocks, x, columns, inputs.cache, layers.get("blocks"), *more)
        if beside:  # the clean half is only there to be looked at
            x = jnp.split(x, 2, axis=1)[0]
        if cond is None:
            return NetworkOutput(x, self.norm(x), cache)
        shift, scale = jnp.split(self.modulation(cond), 2, axis=-1)
        return NetworkOutput(x, modulate(self.norm(x), shift, scale), cache)
