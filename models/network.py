"""From a config to a pure function of parameters."""

import functools
from typing import Any

import jax
from flax import nnx, traverse_util

from sake_jax.models.config import DiTConfig, EncoderDecoderConfig, NetworkConfig
from sake_jax.models.dit import DiT
from sake_jax.models.encoder_decoder import EncoderDecoder
from sake_jax.models.inputs import NetworkInput, NetworkOutput
from sake_jax.models.layers import UNROLLED
from sake_jax.models.transformer import Transformer
from sake_jax.typing import Key, Params


def build(config: NetworkConfig, rngs: nnx.Rngs) -> Transformer | DiT | EncoderDecoder:
    """The NNX module."""
    if isinstance(config, EncoderDecoderConfig):
        return EncoderDecoder(config, rngs=rngs)
    if isinstance(config, DiTConfig):
        return DiT(config, rngs=rngs)
    return Transformer(config, rngs=rngs)


@functools.lru_cache
def _parts(config: NetworkConfig) -> tuple[Any, Any]:
    return nnx.split(nnx.eval_shape(lambda: build(config, nnx.Rngs(0))))


def abstract(config: NetworkConfig) -> Params:
    """Shapes and dtypes of the parameters, as a nested dictionary.

    >>> from sake_jax.conversion import model_config
    >>> from sake_jax.models import abstract
    >>> abstract(model_config("llada-8b").network)["norm"]["weight"].shape  # without 16 GB
    (4096,)
    """
    return nnx.to_pure_dict(_parts(config)[1])


def flatten_params(params: Params) -> dict[str, Any]:
    """One entry for each parameter, by its path.

    >>> from sake_jax.models import flatten_params
    >>> flatten_params({"norm": {"weight": 1.0}})
    {'norm.weight': 1.0}
    """
    return traverse_util.flatten_dict(params, sep=".")


def nest_params(leaves: dict[str, Any]) -> Params:
    """The inverse of `flatten_params`.

    >>> from sake_jax.models import nest_params
    >>> nest_params({"norm.weight": 1.0})
    {'norm': {'weight': 1.0}}
    """
    return traverse_util.unflatten_dict(leaves, sep=".")


def _variables(config: NetworkConfig) -> dict[str, Any]:
    state = nnx.to_flat_state(_parts(config)[1])
    return {".".join(map(str, path)): variable for path, variable in state}


def param_axes(config: NetworkConfig) -> dict[str, tuple[str | None, ...]]:
    """The logical names of every parameter's axes, by its path; see `sake_jax.sharding`.

    >>> from sake_jax.conversion import model_config
    >>> from sake_jax.models import param_axes
    >>> param_axes(model_config("llada-8b").network)["blocks.attention.query.kernel"]
    ('layers', 'heads', 'embed')
    """

    def names(variable) -> tuple[str | None, ...]:
        own = variable.get_metadata("axes")
        return ("layers",) * (len(variable.shape) - len(own)) + own

    return {path: names(variable) for path, variable in _variables(config).items()}


def exact_params(config: NetworkConfig) -> frozenset[str]:
    """Paths of parameters that keep their dtype when the others are cast, and are not trained.

    >>> from sake_jax.conversion import model_config
    >>> from sake_jax.models import exact_params
    >>> sorted(exact_params(model_config("mdlm-owt").network))
    ['frequencies']
    """
    variables = _variables(config).items()
    return frozenset(path for path, v in variables if v.get_metadata("exact", False))


def init(config: NetworkConfig, key: Key) -> Params:
    """Fresh parameters: kernels of deviation 1/√inputs, tables of 1, norms at 1.

    >>> from sake_jax.models import TransformerConfig, init
    >>> config = TransformerConfig(V=64, D=16, N=2, H=2, K=2, head_dim=8, F=32, context=32)
    >>> params = init(config, jax.random.key(0))
    >>> params["norm"]["weight"].shape
    (16,)
    """
    return nnx.to_pure_dict(nnx.split(build(config, nnx.Rngs(key)))[1])


STACKS = ("first", "blocks")
"""Parameters with a leading axis of layers; the first only where some layers differ."""


def split_layers(params: Params) -> Params:
    """The same parameters with the layers of short stacks apart, for use in a loop.

    A stack would be cut into layers again at every round, which copies all of them.
    """
    return params | {name: _split(params[name]) for name in STACKS if name in params}


def _split(stacked: Params) -> Params | tuple[Params, ...]:
    count = jax.tree.leaves(stacked)[0].shape[0]
    if count > UNROLLED:
        return stacked
    return tuple(jax.tree.map(lambda leaf, at=at: leaf[at], stacked) for at in range(count))


def forward(config: NetworkConfig, params: Params, inputs: NetworkInput) -> NetworkOutput:
    """One forward pass, of all columns or of those that `inputs` asks for.

    Nothing is shifted: of causal networks and Dream's, row j predicts token j + 1.

    >>> import jax.numpy as jnp
    >>> import sake_jax as sj
    >>> from sake_jax.models import forward, network_input
    >>> lm = sj.load("tinystories")
    >>> inputs = network_input(lm.config, jnp.array([[5, 6, 7]]))
    >>> forward(lm.config.network, lm.params, inputs).features.shape
    (1, 3, 256)
    """
    apart = {name: params[name] for name in STACKS if isinstance(params.get(name), tuple)}
    whole = params | {name: layers[0] for name, layers in apart.items()}  # for their structure
    return nnx.merge(_parts(config)[0], whole)(inputs, apart)
