"""int8 kernels: one scale per output channel, chosen so that its largest weight becomes 127."""

from collections.abc import Mapping

import jax
import numpy as np

from sake_jax.conversion.source import Index
from sake_jax.conversion.weights import KERNEL, SCALE, Weights, full

LARGEST = 127


def quantize(kernel: np.ndarray, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """int8 weights and float32 scales, kernel ≈ weights × scale; `inputs` is the summed axis.

    >>> weights, scale = quantize(np.array([[1.0, -2.0], [0.0, 0.0]]), inputs=1)
    >>> weights.tolist(), scale.tolist()
    ([[64, -127], [0, 0]], [0.01574803151190281, 1.0])
    """
    wide = kernel.astype(np.float32)
    largest = np.max(np.abs(wide), axis=inputs, keepdims=True)
    scale = np.where(largest > 0, largest / LARGEST, 1).astype(np.float32)
    return np.rint(wide / scale).astype(np.int8), np.squeeze(scale, inputs)


class Quantized:
    """Parameters of a quantised model, computed from float ones as they are read."""

    def __init__(self, weights: Weights, leaves: Mapping[str, jax.ShapeDtypeStruct]):
        """`leaves` are the quantised model's parameters."""
        self.weights = weights
        self.leaves = {
            path: leaf if self._computed(path, leaf) else weights.leaves[path]
            for path, leaf in leaves.items()
        }

    def _computed(self, path: str, leaf: jax.ShapeDtypeStruct) -> bool:
        return leaf.dtype == np.int8 or path not in self.weights.leaves

    def read(self, target: str, index: Index) -> np.ndarray:
        leaf = self.leaves[target]
        if not self._computed(target, leaf):
            return self.weights.read(target, index)
        index = full(leaf.shape, index)
        kernel = target.removesuffix(SCALE) + KERNEL if target.endswith(SCALE) else target
        shape = self.weights.leaves[kernel].shape
        inputs = 2  # of (layer, outputs, inputs) and of (layer, expert, inputs, outputs)
        # A scale belongs to all inputs of a channel, also to those this slice leaves out.
        rows = list(index) if target == kernel else [*index[:inputs], slice(None), *index[inputs:]]
        rows[inputs] = slice(0, shape[inputs])
        values, scale = quantize(self.weights.read(kernel, tuple(rows)), inputs)
        if target != kernel:
            return scale
        keep = tuple(index[a] if a == inputs else slice(None) for a in range(len(shape)))
        return values[keep]
