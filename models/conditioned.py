"""A denoiser that is told what it predicted last: an encoder of text, a decoder of a window."""

import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from sake_jax.models import network
from sake_jax.models.config import EncoderDecoderConfig, NetworkConfig
from sake_jax.models.denoiser import NetworkDenoiser
from sake_jax.models.encoder_decoder import empty_caches
from sake_jax.models.inputs import NetworkInput
from sake_jax.node import Node
from sake_jax.precision import precise, product
from sake_jax.sharding import HIDDEN, constrain
from sake_jax.typing import Features, Leaf, Logits, Params, Rows
from sake_jax.view import Reread, View


class ConditionedCache(Node):
    """What the denoiser keeps between steps."""

    kv: Any
    """A `KVCache` for each kind of layer."""
    features: Leaf
    """(B, L, D) the encoder's of text, the decoder's of the window."""
    signal: Leaf
    """(B, L, D) the mean embedding of what was predicted last; zeros where nothing was yet."""


class ConditionedDenoiser(NetworkDenoiser):
    """Reads finished text with the encoder, and the window with the decoder.

    `remember` keeps what a step predicted, after guidance, temperature and filters: the next read
    of that window is told. Logits are capped, so the head is not affine.

    >>> from sake_jax.conversion import model_config
    >>> denoiser = ConditionedDenoiser(model_config("diffusiongemma-26b-a4b").network)
    >>> denoiser.affine, denoiser.window
    (False, 256)
    """

    affine: ClassVar[bool] = False

    @property
    def _own(self) -> EncoderDecoderConfig:
        assert isinstance(self.config, EncoderDecoderConfig)
        return self.config

    @property
    def window(self) -> int:
        """Columns that the decoder was trained to write together."""
        return self._own.window

    def with_block(self, size: int) -> "ConditionedDenoiser":
        """The same: a window may have any width, and stand anywhere."""
        return self

    def read(self, params: Params, view: View, cache: Any) -> tuple[Features, Any]:
        """Features of all columns: the encoder's before the window, the decoder's inside it.

        With a cache, the columns before the window that `view.reread` chooses are encoded again,
        none by default; without one, all of them.
        """
        kept = self.empty_cache(params, *view.tokens.shape) if cache is None else cache
        chosen = view.reread or Reread(jnp.int32(0), ((0, view.width),))
        if cache is None:
            chosen = Reread(jnp.int32(0), (None,))
        inputs = NetworkInput(tokens=view.tokens, positions=view.positions, attend=view.attend)
        branches = [functools.partial(self._encode, params, inputs, view, s) for s in chosen.spans]
        # A branch for each span: the compiler must know how many columns are encoded.
        kept = jax.lax.switch(chosen.choice, branches, kept)
        window = inputs.replace(signal=kept.signal, start=view.window_start, width=view.width)
        kept = self._pass(params, window, kept)
        return kept.features, None if cache is None else kept

    def head(self, params: Params, rows: Rows) -> Logits:
        """Logits of any rows, between -softcap and softcap."""
        cap = self._own.softcap
        return cap * jnp.tanh(precise(super().head(params, rows)) / cap)

    def empty_cache(self, params: Params, batch: int, length: int) -> ConditionedCache:
        """A cache for a canvas of this size; its first read must be a refresh."""
        dtype = params["input"]["rows"].dtype
        kv = empty_caches(self._own, batch, length, dtype)
        kv = {kind: each.spread(like=params) for kind, each in kv.items()}
        rows = constrain(jnp.zeros((batch, length, self._own.D), dtype), HIDDEN, like=params)
        return ConditionedCache(kv, rows, rows)

    def remember(
        self, params: Params, cache: ConditionedCache, logits: Logits, view: View
    ) -> ConditionedCache:
        """The cache with what these logits of the window predict: Σ p(v) · embedding of v."""
        table = self.tables(params).input
        chances = jax.nn.softmax(precise(logits)).astype(table.dtype)
        mean = product("bwv,vd->bwd", chances, table) * self._own.D**0.5
        signal = view.put(cache.signal, mean.astype(cache.signal.dtype))
        return cache.replace(signal=constrain(signal, HIDDEN))

    def _encode(
        self,
        params: Params,
        inputs: NetworkInput,
        view: View,
        span: tuple[int, int] | None,
        cache: ConditionedCache,
    ) -> ConditionedCache:
        """The cache with the columns of a span that stand before the window encoded."""
        # Where all are: the last ones of a canvas are a window's, now or later.
        width = inputs.tokens.shape[1] - view.width if span is None else span[0]
        if width == 0:
            return cache
        start = jnp.int32(0) if span is None else jnp.maximum(view.window_start - width, 0)
        return self._pass(params, inputs.replace(start=start, width=width), cache)

    def _pass(
        self, params: Params, inputs: NetworkInput, cache: ConditionedCache
    ) -> ConditionedCache:
        """The cache with the computed columns in place of what stood there."""
        output = network.forward(self.config, params, inputs.replace(cache=cache.kv))
        rows, start = output.features.astype(cache.features.dtype), inputs.computed_start
        features = jax.lax.dynamic_update_slice_in_dim(cache.features, rows, start, axis=1)
        return cache.replace(kv=output.cache, features=features)


def denoiser_for(config: NetworkConfig) -> NetworkDenoiser:
    """The denoiser of a network.

    >>> from sake_jax.conversion import model_config
    >>> type(denoiser_for(model_config("llada-8b").network)).__name__
    'NetworkDenoiser'
    """
    conditioned = isinstance(config, EncoderDecoderConfig)
    return ConditionedDenoiser(config) if conditioned else NetworkDenoiser(config)
