"""The diffusion transformer (DiT): MDLM, BD3LM and UDLM.

Every layer is shifted, scaled and gated by an embedding of the noise level (adaLN).
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from sake_jax.models.attention import Attention, Memory, Sight, frequencies, rotary_turns
from sake_jax.models.config import DiTConfig
from sake_jax.models.layers import LayerNorm, Linear, Table, constant, stack
from sake_jax.models.mlp import GeluMLP
from sake_jax.models.page import Output, Page, Work, through

WAVES = 128
"""Frequencies of the noise level's embedding."""


def modulate(x: Array, shift: Array, scale: Array) -> Array:
    return x * (1 + scale[:, None, :]) + shift[:, None, :]


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
    """Attention and MLP, each modulated before and gated after."""

    def __init__(self, c: DiTConfig, *, rngs: nnx.Rngs):
        self.attention_norm = LayerNorm(c.D, c.eps)
        self.attention = Attention(c, rngs=rngs)
        self.mlp_norm = LayerNorm(c.D, c.eps)
        self.mlp = GeluMLP(c.D, c.F, bias=True, quantized=c.quantized, rngs=rngs)
        self.modulation = Linear(c.cond_dim, 6 * c.D, axes=(None, None), bias=True, rngs=rngs)

    def __call__(self, x: Array, sight: Sight, memory: Memory | None, layer: Array, cond: Array):
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = jnp.split(
            self.modulation(cond), 6, axis=-1
        )
        rows = modulate(self.attention_norm(x), shift, scale)
        mixed, memory = self.attention(rows, sight, memory, layer)
        x = x + gate[:, None, :] * mixed
        rows = modulate(self.mlp_norm(x), mlp_shift, mlp_scale)
        return x + mlp_gate[:, None, :] * self.mlp(rows), memory


class DiT(nnx.Module):
    """Tokens and a noise level in, the head's input out."""

    def __init__(self, c: DiTConfig, *, rngs: nnx.Rngs):
        self.config = c
        self.input = Table(c.V, c.D, axes=("vocab", "embed"), rngs=rngs)
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
        self.norm = LayerNorm(c.D, c.eps)
        self.modulation = Linear(c.cond_dim, 2 * c.D, axes=(None, None), bias=True, rngs=rngs)
        self.output = Table(c.V, c.D, axes=("vocab", "embed"), rngs=rngs)
        self.output_bias = constant(0.0, (c.V,), ("vocab",))

    def condition(self, page: Page, dtype) -> Array:
        """(B, cond_dim) what modulates the layers: the noise level, and a label if given."""
        sigma = page.sigma
        if sigma is None or not self.config.time_conditioning:
            sigma = jnp.zeros(page.tokens.shape[0], jnp.float32)
        cond = self.noise(sigma)
        if page.cond is not None:
            cond = cond + jax.nn.silu(self.labels(page.cond))
        return cond.astype(dtype)

    def __call__(self, page: Page, work: Work) -> Output:
        c = self.config
        beside = page.clean is not None
        if beside:
            page = side_by_side(page)
            work = work.replace(width=2 * work.width)
        x = self.input(work.rows(page.tokens))
        cond = self.condition(page, x.dtype)
        first, count = seen(c, work, page.tokens.shape[1])
        here = jax.tree.map(
            lambda part: jax.lax.dynamic_slice_in_dim(part, first, count, axis=1),
            (page.positions, page.attend),
        )
        turns = rotary_turns(here[0], jax.lax.stop_gradient(self.frequencies[...]))
        sight = Sight(turns, allowed(c, page, work, *here), work.start, first)
        x, memory = through(self.blocks, x, sight, work, cond)
        if beside:
            x = jnp.split(x, 2, axis=1)[0]
        shift, scale = jnp.split(self.modulation(cond), 2, axis=-1)
        return Output(x, modulate(self.norm(x), shift, scale), memory)


def side_by_side(page: Page) -> Page:
    """Noisy columns, then the clean ones at the same positions."""
    twice = lambda part: jnp.concatenate([part, part], axis=1)  # noqa: E731
    tokens = jnp.concatenate([page.tokens, page.clean], axis=1)
    return page.replace(tokens=tokens, positions=twice(page.positions), attend=twice(page.attend))


def seen(c: DiTConfig, work: Work, columns: int) -> tuple[Array, int]:
    """The first column that the rows in work look at, and how many they look at.

    Those of a few blocks look no further back than the context, so that the cost of a block
    does not grow with the text before it.
    """
    few = c.block_size and work.memory is not None and work.width <= 2 * c.block_size
    count = min(columns, c.context + c.block_size) if few else columns
    return jnp.clip(work.start + work.width - count, 0, columns - count), count


def allowed(c: DiTConfig, page: Page, work: Work, positions: Array, attend: Array) -> Array:
    """(B, T, P) which of P columns, at these positions, each row in work sees.

    In block diffusion a column sees its own block and the blocks before it, as far back as the
    context goes. In the training form, noisy columns see their own noisy block and the clean
    blocks before it; clean columns see clean ones only.
    """
    batch, columns = positions.shape
    visible = jnp.broadcast_to(attend[:, None, :], (batch, work.width, columns))
    if not c.block_size:
        return visible
    own = work.rows(page.positions)[:, :, None] // c.block_size
    other = positions[:, None, :] // c.block_size
    if page.clean is None:
        return visible & (other <= own) & (own - other < c.context // c.block_size)
    clean = jnp.arange(columns) >= columns // 2
    own_clean, other_clean = clean[None, :, None], clean[None, None, :]
    among_clean = own_clean & other_clean & (other <= own)
    among_noisy = ~own_clean & ~other_clean & (other == own)
    earlier = ~own_clean & other_clean & (other < own)
    return visible & (among_clean | among_noisy | earlier)
