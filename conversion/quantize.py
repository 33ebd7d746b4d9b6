"""int8 kernels: one scale per output channel, chosen so that its largest weight becomes 127."""

import functools
from collections.abc import Mapping

import jax
import numpy as np

from sake_jax.conversion.source import Index
from sake_jax.conversion.weights import Weights, full, slice_by_slice

KERNEL, SCALE = "kernel", "scale"
LARGEST = 127
INPUTS = 2
"""The summed axis of (layer, outputs, inputs) and of (layer, expert, inputs, outputs)."""


def quantize(kernel: np.ndarray, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """int8 weights and float32 scales, kernel ≈ weights × scale; `inputs` is the summed axis.

    >>> weights, scale = quantize(np.array([[1.0, -2.0], [0.0, 0.0]]), inputs=1)
    >>> weights.tolist(), [round(float(each), 4) for each in scale]
    ([[64, -127], [0, 0]], [0.0157, 1.0])
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
        read = functools.partial(self._layer, target)
        return slice_by_slice(read, full(leaf.shape, index), leaf.dtype)

    def _layer(self, target: str, index: Index) -> np.ndarray:
        of_scale = target.endswith(SCALE)
        kernel = target.removesuffix(SCALE) + KERNEL if of_scale else target
        # A scale belongs to all inputs of a channel, also to those this slice leaves out.
        every = slice(0, self.weights.leaves[kernel].shape[INPUTS])
        rest = index[INPUTS:] if of_scale else index[INPUTS + 1 :]
        wide = self.weights.read(kernel, (*index[:INPUTS], every, *rest))
        values, scale = quantize(wide, INPUTS)
        return scale if of_scale else values[(slice(None),) * INPUTS + (index[INPUTS],)]
