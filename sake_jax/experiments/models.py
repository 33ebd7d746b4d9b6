"""Whose texts an experiment is about: a model by its name or folder, or one that is there."""

from pathlib import Path
from typing import Any

import sake_jax as sj
from sake_jax.generation import model_identity

Model = str | Path | sj.LanguageModel


def as_model(model: Model) -> sj.LanguageModel:
    """The model itself, loaded where it is a name or a folder."""
    return model if isinstance(model, sj.LanguageModel) else sj.load(model)


def model_name(model: Model) -> str:
    """What it is called in reports."""
    return model.config.family if isinstance(model, sj.LanguageModel) else str(model)


def about_model(model: Model) -> dict[str, Any]:
    """For a study's folder: its name and, of one that was given, a checksum of its numbers."""
    if not isinstance(model, sj.LanguageModel):
        return {"model": str(model)}
    return {"model": model_name(model), "weights": model_identity(model)["checksum"]}
