"""Checkpoints to break: copies of the goldens with one thing changed."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from conftest import GOLDENS
from sake_jax.conversion import families

FAMILIES = tuple(sorted(path.parent.name for path in GOLDENS.glob("*/model.safetensors")))


def read_of(checkpoint) -> dict[str, tuple[int, ...]]:
    """Shapes of a checkpoint's tensors by name, without parts that its family leaves out."""
    left_out = families.family(checkpoint.config.family).left_out
    shapes = checkpoint.source.shapes.items()
    return {
        name: shape for name, shape in shapes if not any(re.fullmatch(p, name) for p in left_out)
    }


def copied(name: str, folder: Path) -> Path:
    """A copy of a golden checkpoint."""
    target = folder / name
    target.mkdir()
    for file in ("config.json", "model.safetensors"):
        shutil.copyfile(GOLDENS / name / file, target / file)
    return target


def with_tensors(folder: Path, change) -> Path:
    """Rewrites a checkpoint's tensors: `change` takes and returns a dictionary of arrays."""
    file = folder / "model.safetensors"
    tensors = {name: np.asarray(t, order="C") for name, t in change(load_file(file)).items()}
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


def with_config(folder: Path, **changes) -> Path:
    """Rewrites entries of config.json; None removes one."""
    config = json.loads((folder / "config.json").read_text()) | changes
    config = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def sharded(folder: Path) -> Path:
    """Splits model.safetensors into two shards with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    home = {}
    for at, names in enumerate(np.array_split(sorted(tensors), 2)):
        file = f"model-{at + 1:05d}-of-00002.safetensors"
        home |= dict.fromkeys(map(str, names), file)
        save_file({str(n): tensors[str(n)] for n in names}, folder / file)
    index = {"metadata": {}, "weight_map": home}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
