"""The transformer: LLaDA, LLaDA-MoE and Dream read both ways; Llama, Qwen and GPT-2 are causal."""

import jax.numpy as jnp
from flax import nnx
from jax import Array

from sake_jax.models.attention import Attention, Memory, Sight, frequencies, rotary_turns
from sake_jax.models.config import TransformerConfig
from sake_jax.models.layers import LayerNorm, RMSNorm, Table, stack
from sake_jax.models.mlp import Experts, GatedMLP, GeluMLP
from sake_jax.models.page import Output, Page, Work, through


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

    def __call__(self, x: Array, sight: Sight, memory: Memory | None, layer: Array):
        mixed, memory = self.attention(self.attention_norm(x), sight, memory, layer)
        x = x + mixed
        return x + self.mlp(self.mlp_norm(x)), memory


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

    def __call__(self, page: Page, work: Work) -> Output:
        c = self.config
        x = self.input(work.rows(page.tokens))
        turns = None
        if c.rope_theta is None:
            x = x + self.places(work.rows(page.positions))
        else:
            turns = rotary_turns(page.positions, frequencies(c.rope_theta, c.head_dim))
        sight = Sight(turns, self._allowed(page, work), work.start, jnp.int32(0))
        x, memory = through(self.blocks, x, sight, work)
        features = self.norm(x)
        return Output(features, features, memory)

    def _allowed(self, page: Page, work: Work) -> Array:
        batch, columns = page.tokens.shape
        allowed = jnp.broadcast_to(page.attend[:, None, :], (batch, work.width, columns))
        if not self.config.causal:
            return allowed
        column = jnp.arange(columns)
        own = work.start + jnp.arange(work.width)
        return allowed & (column[None, :] <= own[:, None])[None]
