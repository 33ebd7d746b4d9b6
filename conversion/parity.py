"""Proves a checkpoint: every byte against its manifest, every logit against recorded ones."""

import dataclasses
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from sake_jax.checks import require
from sake_jax.conversion.checkpoint import open_checkpoint
from sake_jax.conversion.loader import load
from sake_jax.conversion.manifest import digest
from sake_jax.models import LanguageModel, ModelConfig
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
    `attention_mask`, `sigma`, `cond`. Block diffusion's `input_ids` hold noisy and clean tokens;
    `block_size` says in which blocks they were read where these are not the model's, 0 for none:
    a plain forward pass of LLaDA2's own code sees every column. A decoder's window is in `canvas`,
    and the logits are the window's.

    >>> from sake_jax.conversion import locate, verify
    >>> verify(locate("tinystories")).ok
    True
    """
    checkpoint = open_checkpoint(Path(path))
    expected = None if golden is None else read_golden(Path(golden))  # before gigabytes are read
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
    if expected is not None:
        error = parity(load(path), expected)
        if not error <= tolerance:
            far = f"logits differ from the recorded ones by {error:.2e} > {tolerance:.0e}"
            problems.append(far + _blocks_in_doubt(checkpoint.config, expected))
    return Verdict(len(checkpoint.source.shapes), tuple(problems), error)


def _blocks_in_doubt(config: ModelConfig, golden: Mapping[str, np.ndarray]) -> str:
    """What to look at first where a config may not say in which blocks its model reads."""
    size = config.network.block_size
    if not size or "block_size" in golden:
        return ""
    return f"; if they were not recorded in blocks of {size}, say so: block_size in the file"


def read_golden(file: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file that holds recorded logits, and what they were computed from."""
    rule = f"{file} must be an npz file with the arrays 'input_ids' and 'logits'"
    remedy = "record them with the original code: numpy.savez(file, input_ids=..., logits=...)"
    try:
        opened = np.load(file, allow_pickle=False)
        require(isinstance(opened, np.lib.npyio.NpzFile), rule, "a single array", remedy)
        with opened:
            arrays = dict(opened)
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        if str(error).startswith(rule):
            raise
        raise ValueError(f"{rule}, got {error}; {remedy}.") from error
    missing = [name for name in ("input_ids", "logits") if name not in arrays]
    require(not missing, rule, f"no {' and no '.join(missing)}", remedy)
    tokens, logits = arrays["input_ids"], arrays["logits"]
    right = tokens.ndim == 2 and np.issubdtype(tokens.dtype, np.integer)
    rule = f"input_ids in {file} must be whole numbers of shape (rows, columns)"
    require(right, rule, (tokens.dtype.name, tokens.shape), "record the token ids")
    right = logits.ndim == 3 and np.issubdtype(logits.dtype, np.floating)
    rule = f"logits in {file} must be floats of shape (rows, columns, vocabulary)"
    require(right, rule, (logits.dtype.name, logits.shape), "record them before any softmax")
    return arrays


def parity(lm: LanguageModel, golden: Mapping[str, np.ndarray]) -> float:
    """The largest difference between a model's logits and recorded ones, padding left out."""
    tokens, expected = golden["input_ids"], golden["logits"]
    inputs = {"attend": golden.get("attention_mask")}
    if lm.config.network.time_conditioning:
        rule = "a model that looks at the noise needs the array 'sigma', one number for each row"
        require("sigma" in golden, rule, sorted(golden), "record it with the logits")
        inputs["sigma"] = golden["sigma"]
    if lm.config.network.classes:
        inputs["cond"] = golden.get("cond")
    window = lm.config.network.window
    if window:
        rule = f"a model with a decoder needs the array 'canvas', {window} columns for each row"
        right = golden.get("canvas", tokens).shape == (len(tokens), window)
        require("canvas" in golden and right, rule, sorted(golden), "record it with the logits")
        tokens = np.concatenate([tokens, golden["canvas"]], axis=1)
        if inputs["attend"] is not None:
            attended = np.asarray(inputs["attend"], bool)
            inputs["attend"] = np.pad(attended, ((0, 0), (0, window)), constant_values=True)
    if lm.config.network.block_size and "block_size" in golden:
        lm = _in_blocks(lm, golden["block_size"])
    if lm.config.network.block_size and tokens.shape[1] == 2 * expected.shape[1]:
        tokens, inputs["clean"] = np.split(tokens, 2, axis=1)
    logits = to_host(lm.logits(tokens, **inputs))[:, -window if window else 0 :]
    rule = f"logits must have the shape of the recorded ones {expected.shape}"
    require(logits.shape == expected.shape, rule, logits.shape, "is it the right model's file?")
    attend = None if window else inputs["attend"]  # a window has no padding
    valid = np.ones(expected.shape[:2], bool) if attend is None else attend.astype(bool)
    return float(np.max(np.abs(logits - expected)[valid]))


def _in_blocks(lm: LanguageModel, size: np.ndarray) -> LanguageModel:
    """The same model, reading in blocks of another size."""
    right = size.ndim == 0 and np.issubdtype(size.dtype, np.integer) and size >= 0
    rule, remedy = "block_size must be one whole number", "0 where all columns see each other"
    require(right, rule, size, remedy)
    network = dataclasses.replace(lm.config.network, block_size=int(size))
    return dataclasses.replace(lm, config=dataclasses.replace(lm.config, network=network))
