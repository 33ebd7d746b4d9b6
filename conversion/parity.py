"""Proves a checkpoint: every byte against its manifest, every logit against recorded ones."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from sake_jax.checks import require
from sake_jax.conversion.checkpoint import open_checkpoint
from sake_jax.conversion.loader import load
from sake_jax.conversion.manifest import digest
from sake_jax.models import LanguageModel
from sake_jax.sharding import to_host

TOLERANCE = 2e-4
"""The largest difference of a float32 logit that rounding explains."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What was checked and what was wrong."""

    arrays: int
    problems: tuple[str, ...]
    error: float | None = None
    """The largest difference from the recorded logits, where there were any."""

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(
    path: str | Path,
    golden: str | Path | None = None,
    *,
    tolerance: float = TOLERANCE,
    on_array: Callable[[str], None] = lambda name: None,
) -> Verdict:
    """Reads all of a checkpoint: hashes as in its manifest, numbers finite, logits as recorded.

    `golden` is an npz file with `input_ids` and `logits`, and what else the model needs:
    `attention_mask`, `sigma`, `cond`. Block diffusion's `input_ids` hold noisy and clean tokens.

    >>> from sake_jax.conversion import locate, verify
    >>> verify(locate("tinystories")).ok
    True
    """
    checkpoint = open_checkpoint(Path(path))
    recorded = checkpoint.manifest.units if checkpoint.manifest else {}
    problems = []
    for name in checkpoint.source.shapes:
        array = checkpoint.source.read(name, ())
        if name in recorded and digest(array) != recorded[name]["sha256"]:
            problems.append(f"{name}: its bytes are not those that were converted")
        if array.dtype != np.int8 and not np.isfinite(array.astype(np.float32)).all():
            problems.append(f"{name}: it holds NaN or infinity")
        on_array(name)
    error = None
    if golden is not None:
        with np.load(golden, allow_pickle=False) as arrays:
            error = parity(load(path), dict(arrays))
        if not error <= tolerance:
            problems.append(
                f"logits differ from the recorded ones by {error:.2e} > {tolerance:.0e}"
            )
    return Verdict(len(checkpoint.source.shapes), tuple(problems), error)


def parity(lm: LanguageModel, golden: Mapping[str, np.ndarray]) -> float:
    """The largest difference between a model's logits and recorded ones, padding left out."""
    rule, remedy = "golden must have 'input_ids' and 'logits'", "see `sake-jax verify --help`"
    require({"input_ids", "logits"} <= set(golden), rule, sorted(golden), remedy)
    tokens, expected = golden["input_ids"], golden["logits"]
    inputs = {"attend": golden.get("attention_mask")}
    if lm.config.network.time_conditioning:
        inputs["sigma"] = golden.get("sigma")
    if lm.config.network.classes:
        inputs["cond"] = golden.get("cond")
    if lm.config.network.block_size and tokens.shape[1] == 2 * expected.shape[1]:
        tokens, inputs["clean"] = np.split(tokens, 2, axis=1)
    logits = to_host(lm.logits(tokens, **inputs))
    rule = f"logits must have the shape of the recorded ones {expected.shape}"
    require(logits.shape == expected.shape, rule, logits.shape, "is it the right model's file?")
    attend = inputs["attend"]
    valid = np.ones(expected.shape[:2], bool) if attend is None else attend.astype(bool)
    return float(np.max(np.abs(logits - expected)[valid]))
