"""How parameters move."""

from typing import Any

import optax
from optax import contrib

from sake_jax.models import flat, nested
from sake_jax.training.recipe import Training
from sake_jax.typing import Params

STACKED = contrib.MuonDimensionNumbers(reduction_axis=2, output_axis=1)
"""Kernels of all layers in one array: (layers, outputs, inputs)."""


def falls_at(training: Training) -> int:
    """The step after which the rate falls."""
    return max(training.steps - int(training.decay * training.steps), training.warmup)


def rate(training: Training, highest: float) -> optax.Schedule:
    """Up in a line, level, and down in a line to 0."""
    level = falls_at(training)
    falling = int(training.decay * training.steps)
    return optax.join_schedules(
        [
            optax.linear_schedule(0.0, highest, max(training.warmup, 1)),
            optax.constant_schedule(highest),
            optax.linear_schedule(highest, 0.0, max(falling, 1)),
        ],
        [training.warmup, level],
    )


def optimizer(training: Training, params: Params) -> optax.GradientTransformation:
    """Clipping, then Muon or AdamW. Muon turns matrices; tables and vectors go by AdamW."""
    clip = optax.clip_by_global_norm(training.clip)
    if training.optimizer == "adamw":
        adam = optax.adamw(rate(training, training.rate), weight_decay=training.weight_decay)
        return optax.chain(clip, adam)
    muon = contrib.muon(
        rate(training, training.rate),
        weight_decay=training.weight_decay,
        adam_learning_rate=rate(training, training.adam_rate),
        muon_weight_dimension_numbers=_matrices(params),
    )
    return optax.chain(clip, muon)


def _matrices(params: Params) -> Any:
    """Muon's numbers for stacked kernels, None for everything else."""

    def numbers(name: str, leaf: Any) -> Any:
        return STACKED if name.endswith("kernel") and leaf.ndim == 3 else None

    leaves = flat(params).items()
    return nested({name: numbers(name, leaf) for name, leaf in leaves})
