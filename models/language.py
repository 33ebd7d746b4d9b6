"""A language model: config, parameters, tokenizer, and the reference's own forward pass."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from sake_jax import text
from sake_jax.checks import require
from sake_jax.models import network
from sake_jax.models.conditioned import denoiser_for
from sake_jax.models.config import ModelConfig, NetworkConfig
from sake_jax.models.denoiser import NetworkDenoiser, aligned_features
from sake_jax.models.inputs import NetworkInput, NetworkOutput, count_positions, network_input
from sake_jax.models.scores import log_scores
from sake_jax.typing import Features, Flags, Params, Tokens

CHUNK = 64
"""Columns whose logits are held at once when a text is scored."""


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """What `sake_jax.load` returns.

    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> lm.logits([[5, 6, 7]]).shape  # as the reference's forward pass
    (1, 3, 2048)
    """

    config: ModelConfig
    params: Params
    folder: Path | None = None
    """Where it was loaded from; its tokenizer is there too."""

    def __repr__(self) -> str:
        c, count = self.config.network, sum(map(np.size, jax.tree.leaves(self.params)))
        sizes = f"V={c.V}, D={c.D}, {count:,} parameters"
        return f"{type(self).__name__}({self.config.family}: {sizes})"

    @property
    def denoiser(self) -> NetworkDenoiser:
        """The network as samplers use it."""
        return denoiser_for(self.config.network)

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The tokenizer that came with the weights, loaded when first asked for."""
        return text.tokenizer(self.folder, self.config.tokenizer_class)

    @property
    def dtype(self) -> str:
        """What its numbers are stored in: "float32", "bfloat16", or "int8" for its kernels."""
        own = self.params["input"]["rows"].dtype.name
        return "int8" if self.config.network.quantized else own

    def hidden(self, tokens, attend=None, sigma=None, cond=None, clean=None) -> Features:
        """The last hidden state that the reference implementation returns, one row per column."""
        return self._output(tokens, attend, sigma, cond, clean).hidden

    def logits(self, tokens, attend=None, sigma=None, cond=None, clean=None) -> Array:
        """(B, L, V) what the reference implementation's forward pass returns.

        Nothing is shifted: Dream's and causal models' row j predicts token j + 1. SEDD's are
        log-scores, see `sake_jax.models.log_scores`. Of an encoder with a decoder, the last
        columns are the decoder's window, as many as its config says.

        Args:
          tokens: (B, L) token ids.
          attend: (B, L) False or 0 at padding; everything is attended by default.
          sigma: (B,) total noise, for networks conditioned on it (UDLM, SEDD).
          cond: (B,) labels, for networks with classes.
          clean: (B, L) the clean tokens beside noisy ones: block diffusion's training form.
        """
        output = self._output(tokens, attend, sigma, cond, clean)
        logits = _head(self.denoiser, self.params, output.features)
        c = self.config.network
        if not c.scores:
            return logits
        scaled, sigma = c.scale_by_sigma, jnp.asarray(sigma, jnp.float32)
        return log_scores(logits, jnp.asarray(tokens, jnp.int32), sigma, scaled=scaled)

    def score(self, tokens, attend=None) -> Array:
        """(B, L) log p(token | the tokens before it) in nats; 0 at padding and first tokens.

        For causal models. Logits are held for a few columns at a time.
        """
        remedy = "use sj.bound for diffusion models"
        require(
            self.config.network.causal, "score needs a causal model", self.config.family, remedy
        )
        return _score(self.denoiser, self.params, self.network_input(tokens, attend))

    def positions(self, attend: Flags) -> Tokens:
        """(B, L) positions as the family counts them; see `ModelConfig.positions`."""
        return count_positions(attend, self.config.positions)

    def network_input(self, tokens, attend=None) -> NetworkInput:
        """What the network reads: (B, L) token ids, checked, at the family's positions."""
        tokens = self._tokens("tokens", tokens)
        attend = jnp.ones(tokens.shape, bool) if attend is None else jnp.asarray(attend, bool)
        rule = f"attend must have the tokens' shape {tokens.shape}"
        require(attend.shape == tokens.shape, rule, attend.shape, "one flag per token")
        return network_input(self.config, tokens, attend)

    def _output(self, tokens, attend, sigma, cond, clean) -> NetworkOutput:
        inputs = self.network_input(tokens, attend)
        c = self.config.network
        if sigma is not None:
            rule, remedy = "sigma is for networks conditioned on noise", "leave it out"
            require(c.time_conditioning, rule, sigma, remedy)
            inputs = inputs.replace(sigma=jnp.asarray(sigma, jnp.float32))
        elif c.time_conditioning:
            rule = "this network is conditioned on noise: sigma must have one number per row"
            require(False, rule, sigma, "pass sigma=")
        if cond is not None:
            fits = c.classes and _inside(cond, c.classes + 1)
            rule = f"cond must be labels from 0 to {c.classes} (the last stands for none)"
            require(fits, rule, cond, "leave it out for networks without classes")
            inputs = inputs.replace(cond=jnp.asarray(cond, jnp.int32))
        if clean is not None:
            rule, remedy = "clean is for block diffusion", "leave it out"
            require(c.block_size, rule, self.config.family, remedy)
            clean = self._tokens("clean", clean)
            rule = f"clean must have the tokens' shape {inputs.tokens.shape}"
            require(clean.shape == inputs.tokens.shape, rule, clean.shape, "one for every column")
            inputs = inputs.replace(clean=clean)
        return _forward(c, self.params, inputs)

    def _tokens(self, name: str, tokens) -> Tokens:
        tokens = jnp.asarray(tokens)
        whole_numbers = jnp.issubdtype(tokens.dtype, jnp.integer) and tokens.ndim == 2
        rule = f"{name} must be whole numbers of shape (B, L)"
        require(whole_numbers, rule, (tokens.dtype, tokens.shape), "pass token ids")
        rule = f"{name} must lie inside the vocabulary of {self.config.network.V}"
        require(_inside(tokens, self.config.network.V), rule, tokens, "is it another tokenizer's?")
        rule = (
            f"{name} must have at most {self.config.network.context} columns, the model's context"
        )
        require(tokens.shape[1] <= self.config.network.context, rule, tokens.shape, "shorten them")
        return tokens.astype(jnp.int32)


def in_chunks(function: Callable[..., Array], *columns: Array) -> Array:
    """(B, L) `function(*columns)` of arrays (B, L, ...), for a few columns at a time.

    For functions that look at one column at a time but hold its logits: a vocabulary of 126,000
    would fill the memory otherwise.
    """
    batch, length = columns[0].shape[:2]
    width = min(CHUNK, length)

    def split(x: Array) -> Array:
        x = jnp.pad(x, ((0, 0), (0, -length % width)) + ((0, 0),) * (x.ndim - 2))
        return jnp.moveaxis(x.reshape(batch, -1, width, *x.shape[2:]), 1, 0)

    parts = jax.lax.map(lambda part: function(*part), tuple(map(split, columns)))
    return jnp.moveaxis(parts, 0, 1).reshape(batch, -1)[:, :length]


def _inside(ids, count: int) -> bool:
    if isinstance(ids, Tracer):
        return True
    ids = np.asarray(ids)
    return bool(ids.size == 0 or (ids.min() >= 0 and ids.max() < count))


@functools.partial(jax.jit, static_argnums=0)
def _forward(config: NetworkConfig, params: Params, inputs: NetworkInput) -> NetworkOutput:
    return network.forward(config, params, inputs)


@jax.jit
def _head(denoiser: Any, params: Params, features: Features) -> Array:
    return denoiser.head(params, features)


@jax.jit
def _score(denoiser: NetworkDenoiser, params: Params, inputs: NetworkInput) -> Array:
    features = aligned_features(denoiser.config, params, inputs)

    def log_p(rows, ids):
        chances = jax.nn.log_softmax(denoiser.head(params, rows))
        return jnp.take_along_axis(chances, ids[..., None], axis=-1)[..., 0]

    scores = in_chunks(log_p, features, inputs.tokens)
    # A first token has nothing before it to be predicted from.
    before = jnp.pad(inputs.attend[:, :-1], ((0, 0), (1, 0)))
    return jnp.where(inputs.attend & before, scores, 0.0)
