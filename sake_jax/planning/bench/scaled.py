"""LLaDA-8B in small, with random weights: a model whose steps cost in its proportions."""

import dataclasses
from typing import cast

import jax

from sake_jax.conversion import family, model_config
from sake_jax.models import LanguageModel, TransformerConfig, init

LLADA = cast(TransformerConfig, model_config("llada-8b").network)
SHARE = LLADA.V / (LLADA.N * LLADA.D)
"""A row takes V D operations in the head and 13 N D² in the layers: with V as N D, the head has the
share that it has in LLaDA-8B."""


def scaled_config(D: int, V: int, N: int, H: int) -> TransformerConfig:
    """LLaDA's proportions."""
    sizes = {"D": D, "V": V, "N": N, "H": H, "K": H, "head_dim": D // H, "F": 3 * D}
    return dataclasses.replace(LLADA, **sizes)


def scaled_vocabulary(D: int, N: int) -> int:
    """Tokens that give the head the share of a step that it has in LLaDA-8B.

    >>> scaled_vocabulary(LLADA.D, LLADA.N) == LLADA.V
    True
    """
    return round(SHARE * N * D)


def random_model(c: TransformerConfig, seed: int = 0) -> LanguageModel:
    """Random weights, scaled so that positions differ and no two chances round to the same."""
    params = init(c, jax.random.key(seed))
    params["output"]["rows"] *= 3 / c.D**0.5
    params["blocks"]["attention"]["query"]["kernel"] *= 3
    params["blocks"]["attention"]["out"]["kernel"] *= 3
    return LanguageModel(family("llada").model(c, mask_id=c.V - 1), params)


def scaled_model(D: int = 256, N: int = 4, H: int = 2, times: int = 1) -> LanguageModel:
    """The model that is measured where there is no room for a real one; its vocabulary may be
    some times larger."""
    return random_model(scaled_config(D, times * scaled_vocabulary(D, N), N, H))
