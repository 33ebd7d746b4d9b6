"""From a config to a pure function of parameters."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, traverse_util

from sake_jax.models.config import DiTConfig, NetworkConfig
from sake_jax.models.dit import DiT
from sake_jax.models.page import UNROLLED, Output, Page, Work, whole
from sake_jax.models.transformer import Transformer
from sake_jax.typing import Features, Key, Params, Tokens


def build(config: NetworkConfig, rngs: nnx.Rngs) -> Transformer | DiT:
    """The NNX module."""
    if isinstance(config, DiTConfig):
        return DiT(config, rngs=rngs)
    return Transformer(config, rngs=rngs)


@functools.lru_cache
def _parts(config: NetworkConfig) -> tuple[Any, Any]:
    return nnx.split(nnx.eval_shape(lambda: build(config, nnx.Rngs(0))))


def abstract(config: NetworkConfig) -> Params:
    """Shapes and dtypes of the parameters, as a nested dictionary."""
    return nnx.to_pure_dict(_parts(config)[1])


def flat(params: Params) -> dict[str, Any]:
    """One entry per leaf: {"blocks.attention.query.kernel": ...}."""
    return traverse_util.flatten_dict(params, sep=".")


def nested(leaves: dict[str, Any]) -> Params:
    """The inverse of `flat`."""
    return traverse_util.unflatten_dict(leaves, sep=".")


def _variables(config: NetworkConfig) -> dict[str, Any]:
    state = nnx.to_flat_state(_parts(config)[1])
    return {".".join(map(str, path)): variable for path, variable in state}


def axes(config: NetworkConfig) -> dict[str, tuple[str | None, ...]]:
    """The logical names of every parameter's axes, by its path."""

    def names(variable) -> tuple[str | None, ...]:
        own = variable.get_metadata("axes")
        return ("layers",) * (len(variable.shape) - len(own)) + own

    return {path: names(variable) for path, variable in _variables(config).items()}


def exact(config: NetworkConfig) -> frozenset[str]:
    """Paths of parameters that keep their dtype when the others are cast, such as frequencies."""
    variables = _variables(config).items()
    return frozenset(path for path, v in variables if v.get_metadata("exact", False))


def init(config: NetworkConfig, key: Key) -> Params:
    """Fresh parameters: kernels of deviation 1/√inputs, tables of 1, norms at 1."""
    return nnx.to_pure_dict(nnx.split(build(config, nnx.Rngs(key)))[1])


def apart(params: Params) -> Params:
    """The same parameters with the layers of a short stack apart, for use in a loop.

    A stack would be cut into layers again at every round, which copies all of them.
    """
    count = jax.tree.leaves(params["blocks"])[0].shape[0]
    if count > UNROLLED:
        return params
    layers = [jax.tree.map(lambda leaf, at=at: leaf[at], params["blocks"]) for at in range(count)]
    return params | {"blocks": tuple(layers)}


def apply(config: NetworkConfig, params: Params, page: Page, work: Work) -> Output:
    """Runs the network on the rows in work."""
    if isinstance(params["blocks"], tuple):
        work = work.replace(layers=params["blocks"])
        params = params | {"blocks": params["blocks"][0]}  # for its structure
    return nnx.merge(_parts(config)[0], params)(page, work)


def features(
    config: NetworkConfig, params: Params, tokens: Tokens, clean: Tokens | None = None
) -> Features:
    """(B, L, D) the head's input for whole rows without padding, as training needs it.

    Rows stand where the network has them: `NetworkDenoiser.align` moves those of causal and
    shifted networks to the token they predict. `clean` is for block diffusion, which is trained
    with the clean text beside the noisy one.

    >>> import jax
    >>> from sake_jax.models import TransformerConfig, features, init
    >>> sizes = {"V": 10, "D": 8, "N": 1, "H": 2, "K": 2, "F": 16, "head_dim": 4, "context": 16}
    >>> config = TransformerConfig(**sizes)
    >>> tokens = jax.numpy.ones((2, 5), int)
    >>> features(config, init(config, jax.random.key(0)), tokens).shape
    (2, 5, 8)
    """
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    page = Page(tokens, positions, jnp.ones(tokens.shape, bool), clean=clean)
    return apply(config, params, page, whole(page)).features
