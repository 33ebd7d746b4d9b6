"""A network as the samplers see it: a `sake_jax.core.Denoiser`."""

import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import require
from sake_jax.core import Tables
from sake_jax.models import network
from sake_jax.models.attention import KVCache
from sake_jax.models.config import NetworkConfig
from sake_jax.models.inputs import NetworkInput
from sake_jax.node import Node
from sake_jax.noise_levels import LogLinear
from sake_jax.precision import product
from sake_jax.sharding import HIDDEN, LOGITS, constrain
from sake_jax.typing import Features, Flags, Leaf, Logits, Params, Rows
from sake_jax.view import Reread, View


def total_noise(time: Array) -> Array:
    """σ(t) = -log(1 - (1 - ε) t), the log-linear schedule; see `sake_jax.noise_levels`.

    >>> [round(float(noise), 2) for noise in total_noise(jnp.array([0.5, 1.0]))]
    [0.69, 6.91]
    """
    return LogLinear().total(time)


def noise_level(config: NetworkConfig, time: Array) -> Array:
    """σ that a network is told at time t: `total_noise`, but for block diffusion.

    BD3LM's reference masks with the chance t itself and stops the noise where the log-linear
    schedule ends: σ(t) = min(-log(1 - t), -log ε).

    >>> from sake_jax.conversion import model_config
    >>> [round(float(noise_level(model_config("mdlm-owt").network, jnp.float32(0.99))), 2)]
    [4.51]
    """
    if not config.block_size:
        return config.noise.total(time)
    return jnp.minimum(-jnp.log1p(-time), -math.log(LogLinear.eps))


class Cache(Node):
    """What a denoiser keeps between steps."""

    kv: Any
    """A `KVCache`."""
    features: Leaf
    """(B, L, D) the last features of all columns, so that guidance sees the whole canvas while
    only the window is recomputed. Not shifted."""


class NetworkDenoiser(Node):
    """Reads a canvas with one of our networks.

    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> denoiser = NetworkDenoiser(lm.config.network)  # as `lm.denoiser`
    >>> denoiser.tables(lm.params).output.shape
    (2048, 256)
    """

    affine: ClassVar[bool] = True
    reads_perturbation: ClassVar[bool] = True
    config: NetworkConfig = struct.field(pytree_node=False)

    @property
    def shifted(self) -> bool:
        """Whether row j of the network predicts token j + 1."""
        return self.config.shifted or self.config.causal

    @property
    def reads_time(self) -> bool:
        """Whether the network looks at the noise level."""
        return self.config.time_conditioning

    @property
    def block_size(self) -> int:
        """Columns of a block in block diffusion, 0 where all columns see each other."""
        return self.config.block_size

    def with_block(self, size: int) -> "NetworkDenoiser":
        """The same in blocks of another size, which no parameter depends on."""
        return type(self)(dataclasses.replace(self.config, block_size=size))

    def prepare(self, params: Params) -> Params:
        """The parameters as a loop over `read` wants them."""
        return network.split_layers(params)

    def read(self, params: Params, view: View, cache: Any) -> tuple[Features, Any]:
        """Features of all columns, aligned with the token they predict.

        Without a cache everything is computed. With one, the columns that `view.reread` chooses,
        the window by default; the others keep their keys, values and features.
        """
        size, begins = self.block_size, view.canvas.generation_start
        rule = f"block diffusion must start at a multiple of its block of {size} columns"
        fits = not size or begins % size == 0
        require(fits, rule, begins, f"make the canvas with align={size}")
        inputs = NetworkInput(
            tokens=view.tokens,
            positions=view.positions,
            attend=view.attend,
            sigma=noise_level(self.config, view.time),
            cond=view.cond if self.config.classes else None,
            perturbation=view.perturbation,
        )
        if cache is None:
            return aligned_features(self.config, params, inputs), None

        def reread(span: tuple[int, int] | None, cache: Cache) -> Cache:
            if span is None:
                return self._update(params, inputs, cache)
            columns = inputs.tokens.shape[1]
            # A shifted network predicts the span's first token one column earlier.
            before = span[0] + int(self.shifted)
            width = min(before + span[1], columns)
            start = jnp.clip(view.window_start - before, 0, columns - width)
            return self._update(params, inputs.replace(start=start, width=width), cache)

        # A branch for each span: the compiler must know how many columns are recomputed.
        chosen = view.reread or Reread(jnp.int32(0), ((0, view.width),))
        branches = [functools.partial(reread, span) for span in chosen.spans]
        cache = jax.lax.switch(chosen.choice, branches, cache)
        return self.align(cache.features, view.attend), cache

    def head(self, params: Params, rows: Rows) -> Logits:
        """Logits of any rows."""
        tables = _stored(params)
        logits = constrain(product("bwd,vd->bwv", rows, tables.output), LOGITS)
        if tables.bias is not None:
            logits = logits + tables.bias.astype(logits.dtype)[None, None]
        return constrain(logits[:, :, : self.config.V], LOGITS)

    def tables(self, params: Params) -> Tables:
        """The vocabulary's embeddings; with tied weights both ends are the same array."""
        own = lambda table: constrain(table[: self.config.V], ("vocab", "embed")[: table.ndim])  # noqa: E731
        return jax.tree.map(own, _stored(params))

    def empty_cache(self, params: Params, batch: int, length: int) -> Cache:
        """A cache for a canvas of this size; its first read must be a refresh."""
        c, dtype = self.config, params["input"]["rows"].dtype
        empty = jnp.zeros((c.N, batch, length, c.K, c.head_dim), dtype)
        features = constrain(jnp.zeros((batch, length, c.D), dtype), HIDDEN, like=params)
        return Cache(KVCache(empty, empty).spread(like=params), features)

    def _update(self, params: Params, inputs: NetworkInput, cache: Cache) -> Cache:
        """The cache with the computed columns in place of what stood there."""
        output = network.forward(self.config, params, inputs.replace(cache=cache.kv))
        rows, start = output.features.astype(cache.features.dtype), inputs.computed_start
        features = jax.lax.dynamic_update_slice_in_dim(cache.features, rows, start, axis=1)
        return Cache(output.cache, features)

    def align(self, features: Features, attend: Flags) -> Features:
        """Rows moved to the token they predict, where the network's are one early."""
        return one_later(features, attend) if self.shifted else features


def one_later(rows: Features, attend: Flags) -> Features:
    """Each row that predicts the next token, moved to that token.

    A text's first token has no row before it and keeps its own: what padding has is not its.

    >>> one_later(jnp.arange(4.0)[None, :, None], jnp.array([[False, True, True, True]]))[0, :, 0]
    Array([0., 1., 1., 2.], dtype=float32)
    """
    first = attend & ~jnp.pad(attend[:, :-1], ((0, 0), (1, 0)))
    moved = jnp.concatenate([rows[:, :1], rows[:, :-1]], axis=1)
    return jnp.where(first[..., None], rows, moved)


def aligned_features(config: NetworkConfig, params: Params, inputs: NetworkInput) -> Features:
    """(B, L, D) the head's input by one full forward pass, rows aligned with what they predict.

    >>> import jax.numpy as jnp
    >>> import sake_jax as sj
    >>> from sake_jax.models import aligned_features, network_input
    >>> lm = sj.load("tinystories")
    >>> inputs = network_input(lm.config, jnp.array([[5, 6, 7]]))
    >>> features = aligned_features(lm.config.network, lm.params, inputs)
    >>> lm.denoiser.head(lm.params, features).shape
    (1, 3, 2048)
    """
    features = network.forward(config, params, inputs).features
    return NetworkDenoiser(config).align(features, inputs.attend)


def _stored(params: Params) -> Tables:
    """The tables as they are stored: on a mesh there may be rows of zeros at the end."""
    output = params["output"] if "output" in params else params["input"]
    return Tables(params["input"]["rows"], output["rows"], params.get("output_bias"))
