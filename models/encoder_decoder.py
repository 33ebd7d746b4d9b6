"""DiffusionGemma's network: one set of layers that reads text one way, as an encoder, and a window
after it both ways, as a decoder that is told what it predicted last."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from flax import nnx, struct
from jax import Array

from sake_jax.models.attention import (
    HEADS,
    KEY_HEADS,
    Attention,
    AttentionInput,
    KVCache,
    frequencies,
    rotary_angles,
)
from sake_jax.models.config import KINDS, EncoderDecoderConfig
from sake_jax.models.experts import Experts, Router
from sake_jax.models.inputs import NetworkInput, NetworkOutput
from sake_jax.models.layers import (
    Layers,
    RMSNorm,
    Table,
    constant,
    scan_layers,
    stack,
    times,
    unit_rms,
)
from sake_jax.models.mlp import GatedMLP
from sake_jax.node import Node

Caches = dict[str, KVCache]
"""Keys and values by the kind of their layers, which have other shapes."""


class Pass(Node):
    """What the layers of one pass have in common."""

    columns: dict[str, AttentionInput]
    """By the kind of layer: its rotary angles, and what it sees."""
    part: str = struct.field(pytree_node=False)
    """"encoder" or "decoder"."""


def empty_caches(c: EncoderDecoderConfig, batch: int, length: int, dtype: Any) -> Caches:
    """Caches of all layers before anything was read."""
    caches = {}
    for kind in KINDS:
        own = c.of_kind(kind)
        empty = jnp.zeros((c.count(kind), batch, length, own.K, own.head_dim), dtype)
        caches[kind] = KVCache(empty, empty)
    return caches


class NormedAttention(Attention):
    """Attention of normed queries, keys and values, without a scale. Where `shared`, the keys'
    projection is the values' too."""

    def __init__(self, c: EncoderDecoderConfig, *, shared: bool, rngs: nnx.Rngs):
        super().__init__(c, rngs=rngs)
        self.scale, self.eps = 1.0, c.eps
        if shared:
            del self.value

    def project(self, x: Array) -> tuple[Array, Array, Array]:
        q, k = self.in_heads(self.query(x), HEADS), self.in_heads(self.key(x), KEY_HEADS)
        v = self.in_heads(self.value(x), KEY_HEADS) if hasattr(self, "value") else k
        return self.query_norm(q), self.key_norm(k), unit_rms(v, self.eps)


class NormedRouter(Router):
    """A router that looks at rows of unit RMS, scaled, and whose experts have a scale each."""

    def __init__(self, c: EncoderDecoderConfig, *, rngs: nnx.Rngs):
        super().__init__(c, rngs=rngs)
        self.scale = constant(1.0, (c.D,), ("embed",))
        self.expert_scale = constant(1.0, (c.experts,), (None,))

    def __call__(self, rows: Array) -> tuple[Array, Array]:
        c = self.config
        rows = times(unit_rms(rows, c.eps), self.scale[...]) * c.D**-0.5
        weights, experts = super().__call__(rows)
        return weights * self.expert_scale[...].astype(weights.dtype)[experts], experts


class Layer(nnx.Module):
    """Attention, then an MLP and experts side by side; each has a norm before and one after."""

    def __init__(self, c: EncoderDecoderConfig, kind: str, place: int, *, rngs: nnx.Rngs):
        self.kind = kind
        # Its place among the layers of its kind: the first round's, and how many a round has.
        self.place, self.stride = place, c.kinds[: c.period].count(kind)
        norm = lambda: RMSNorm(c.D, c.eps)  # noqa: E731
        self.attention_norm, self.after_attention = norm(), norm()
        self.attention = NormedAttention(c.of_kind(kind), shared=kind == "full", rngs=rngs)
        self.mlp_norm, self.after_mlp = norm(), norm()
        self.mlp = GatedMLP(c, c.dense_F, rngs=rngs)
        self.experts_norm, self.after_experts = norm(), norm()
        self.experts = Experts(c, router=NormedRouter(c, rngs=rngs), rngs=rngs)
        self.after_both = norm()
        self.encoder_scale = constant(1.0, (1,), (None,))
        self.decoder_scale = constant(1.0, (1,), (None,))

    def __call__(self, x: Array, inputs: Pass, caches: Caches, at: Array) -> tuple[Array, Caches]:
        columns, layer = inputs.columns[self.kind], at * self.stride + self.place
        mixed, cache = self.attention(self.attention_norm(x), columns, caches[self.kind], layer)
        assert cache is not None
        x = x + self.after_attention(mixed)
        dense = self.after_mlp(self.mlp(self.mlp_norm(x)))
        sparse = self.after_experts(self.experts(self.experts_norm(x), routed=x))
        x = x + self.after_both(dense + sparse)
        scale = self.encoder_scale if inputs.part == "encoder" else self.decoder_scale
        return times(x, scale[...]), caches | {self.kind: cache}


class Round(nnx.Module):
    """The layers after which the kinds repeat."""

    def __init__(self, c: EncoderDecoderConfig, *, rngs: nnx.Rngs):
        self.size = c.period
        for at, kind in enumerate(c.kinds[: c.period]):
            place = c.kinds[:at].count(kind)
            setattr(self, f"layer{at}", Layer(c, kind, place, rngs=rngs))

    def __call__(self, x: Array, inputs: Pass, caches: Caches, at: Array) -> tuple[Array, Caches]:
        for layer in range(self.size):
            x, caches = getattr(self, f"layer{layer}")(x, inputs, caches, at)
        return x, caches


class SelfConditioning(nnx.Module):
    """Embeddings of noisy tokens, and what an MLP makes of those that were predicted last."""

    def __init__(self, c: EncoderDecoderConfig, *, rngs: nnx.Rngs):
        self.eps = c.eps
        self.norm = RMSNorm(c.D, c.eps)
        self.mlp = GatedMLP(dataclasses.replace(c, quantized=False), c.dense_F, rngs=rngs)

    def __call__(self, x: Array, signal: Array) -> Array:
        return unit_rms(x + self.mlp(self.norm(signal.astype(x.dtype))), self.eps)


class EncoderDecoder(nnx.Module):
    """Tokens in, the head's input out.

    Without a cache, the last `window` columns are the decoder's, and those before the encoder's.
    With one, the computed columns are the decoder's if there is a signal, else the encoder's. Both
    write their keys and values at their columns: the decoder's stay until the encoder reads the
    finished text there, and meanwhile no column before them sees them.

    The signal is a decoder's last prediction: the mean embedding of the tokens, each by its chance.
    """

    def __init__(self, c: EncoderDecoderConfig, *, rngs: nnx.Rngs):
        self.config = c
        self.input = Table(c.V, c.D, axes=("vocab", "embed"), rngs=rngs)
        self.blocks = stack(lambda rngs: Round(c, rngs=rngs), c.N // c.period, rngs)
        self.norm = RMSNorm(c.D, c.eps)
        self.conditioning = SelfConditioning(c, rngs=rngs)

    def __call__(self, inputs: NetworkInput, layers: Layers) -> NetworkOutput:
        """`layers`: the parameters of each round of layers, where they were taken apart."""
        if inputs.cache is not None:
            return self.part(inputs, layers)
        c, (batch, length) = self.config, inputs.tokens.shape
        width, dtype = min(c.window, length), self.input.rows[...].dtype
        signal = inputs.signal
        signal = jnp.zeros((batch, length, c.D), dtype) if signal is None else signal
        caches = empty_caches(c, batch, length, dtype)
        text = self.part(inputs.replace(cache=caches, signal=None), layers)
        start = jnp.int32(length - width)
        last = inputs.replace(cache=text.cache, signal=signal, start=start, width=width)
        features = jnp.concatenate(
            [text.features[:, : length - width], self.part(last, layers).features], axis=1
        )
        return NetworkOutput(features, features, None)

    def part(self, inputs: NetworkInput, layers: Layers) -> NetworkOutput:
        """One pass of the encoder or of the decoder over the computed columns."""
        c, decodes = self.config, inputs.signal is not None
        x = self.input(inputs.computed(inputs.tokens))
        x = x * jnp.asarray(c.D**0.5, x.dtype)
        if decodes:
            x = self.conditioning(x, inputs.computed(inputs.signal))
        shared = Pass(
            {kind: self.columns(kind, inputs) for kind in KINDS},
            "decoder" if decodes else "encoder",
        )
        x, caches = scan_layers(self.blocks, x, shared, inputs.cache, layers.get("blocks"))
        features = self.norm(x)
        return NetworkOutput(features, features, caches)

    def columns(self, kind: str, inputs: NetworkInput) -> AttentionInput:
        """Positions as layers of this kind turn them, and which columns their queries see."""
        c = self.config
        if kind == "sliding":
            turned = frequencies(c.rope_theta, c.head_dim)
        else:  # exponents over the whole head, of which only the first entries turn
            turned = frequencies(c.full_theta, c.full_head_dim)
            place = jnp.arange(c.full_head_dim // 2)
            turned = jnp.where(place < c.full_rotary_dim // 2, turned, 0)
        angles = rotary_angles(inputs.positions, turned)
        seen = visible(inputs, c.reach if kind == "sliding" else None)
        return AttentionInput(angles, seen, inputs.computed_start, jnp.int32(0))


def visible(inputs: NetworkInput, reach: int | None) -> Array:
    """(B, T, L) which columns the computed ones see: the encoder's those up to themselves, the
    decoder's all up to the window's end; with a reach, those that are near only."""
    start, width = inputs.computed_start, inputs.computed_width
    column = jnp.arange(inputs.tokens.shape[1])[None, :]
    own = (start + jnp.arange(width))[:, None]
    if inputs.signal is not None:
        # What a window's first column sees of the text before it, all of its columns see.
        first, last = jnp.full_like(own, start), jnp.full_like(own, start + width - 1)
    else:
        first, last = own, own
    seen = column <= last
    if reach is not None:
        seen = seen & (column > first - reach)
    return inputs.attend[:, None, :] & seen[None]
