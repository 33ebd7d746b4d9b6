"""MAUVE: how close generated texts are to human ones, by the package mauve-text."""

import importlib
from typing import Any

import numpy as np

from sake_jax.checks import require, whole


def mauve(
    human: Any, generated: Any, *, buckets: int | None = None, scale: float = 5.0, seed: int = 25
) -> float:
    """The area under the divergence curve (Pillutla et al. 2021), 0 to 1; 1 is the same.

    Published numbers use features of GPT-2 large and thousands of texts: with other features or
    fewer texts compare only among yourselves.

    >>> mauve(np.zeros((9, 8)), np.zeros((9, 4)))  # two encoders
    Traceback (most recent call last):
    ValueError: human and generated must be (N, D) and (M, D) features, got [(9, 8), (9, 4)]; use \
one encoder for both.

    Args:
      human: (N, D) features, such as `Encoder.embed` gives.
      generated: (M, D) features by the same encoder.
      buckets: of the histograms; a tenth of the smaller set by default.
      scale: of divergences; higher ones lower the score.
      seed: of the clustering.
    """
    sets = [np.asarray(rows, np.float32) for rows in (human, generated)]
    right = all(rows.ndim == 2 and len(rows) for rows in sets)
    right = right and sets[0].shape[1:] == sets[1].shape[1:]
    rule = "human and generated must be (N, D) and (M, D) features"
    require(right, rule, [rows.shape for rows in sets], "use one encoder for both")
    number = "auto" if buckets is None else whole("buckets", buckets, at_least=2)
    try:
        package = importlib.import_module("mauve")
    except ImportError as error:
        raise ValueError("MAUVE needs the package mauve-text; pip install mauve-text.") from error
    options = {"num_buckets": number, "mauve_scaling_factor": scale, "seed": seed}
    return float(package.compute_mauve(sets[0], sets[1], **options).mauve)
