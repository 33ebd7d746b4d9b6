"""Which mesh a model fits: from the number of devices and the memory of each."""

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from sake_jax.checks import require
from sake_jax.models import network
from sake_jax.models.config import NetworkConfig
from sake_jax.sharding import divisors, format_divisors, shard_shape

SHARE = 0.6
"""Of a device's memory for parameters, at most; the rest is for activations, caches and logits."""
MOST = 2**13
"""Devices, where it is searched for how many would do."""


def choose_mesh(
    config: NetworkConfig,
    devices: int | None = None,
    memory: float | None = None,
    leaves: Mapping[str, Any] | None = None,
) -> dict[str, int]:
    """Sizes for `sake_jax.mesh` that let a model fit.

    Splitting a model costs communication in every layer, splitting a batch none. So the model is
    split over as few devices as let its parameters take at most `SHARE` of each one's memory:
    over `tensor` as far as that divides the heads, then over `fsdp`. The other devices take rows.

    >>> from sake_jax.conversion import model_config
    >>> from sake_jax.models import choose_mesh
    >>> choose_mesh(model_config("llada-8b").network, devices=8, memory=32e9)
    {'data': 4, 'fsdp': 1, 'tensor': 2}

    Args:
      config: of the network.
      devices: all that there are by default.
      memory: bytes of each; what they report by default.
      leaves: the parameters' shapes and dtypes by path; float32 by default.
    """
    devices = jax.device_count() if devices is None else devices
    memory = device_memory() if memory is None else memory
    leaves = network.flatten_params(network.abstract(config)) if leaves is None else leaves

    def fitting(devices: int) -> Iterator[dict[str, int]]:
        for sizes in mesh_splits(config.H, devices):
            if bytes_per_device(config, leaves, sizes) <= SHARE * memory:
                yield sizes

    sizes = next(fitting(devices), None)
    if sizes is None:
        more = (count for count in powers_above(devices) if next(fitting(count), None))
        enough = next(more, None)
        remedy = f"use {enough} devices" if enough else "use devices with more memory"
        size = f"{bytes_per_device(config, leaves, {}) / 1e9:.2f} GB"
        rule = f"{size} of parameters must fit {SHARE:.0%} of the memory of {devices} devices"
        require(False, rule, f"{memory / 1e9:.2f} GB each", f"{remedy}, or dtype='int8'")
        raise AssertionError
    return sizes


def mesh_splits(heads: int, devices: int) -> Iterator[dict[str, int]]:
    """Meshes of all devices, from the least split model to the most.

    >>> [tuple(sizes.values()) for sizes in mesh_splits(2, 4)]
    [(4, 1, 1), (2, 1, 2), (2, 2, 1), (1, 2, 2), (1, 4, 1)]
    """
    for parts in divisors(devices):
        for tensor in reversed(divisors(math.gcd(parts, heads))):
            yield {"data": devices // parts, "fsdp": parts // tensor, "tensor": tensor}


def bytes_per_device(
    config: NetworkConfig, leaves: Mapping[str, Any], sizes: Mapping[str, int]
) -> int:
    """Bytes of parameters that one device of such a mesh holds.

    >>> from sake_jax.conversion import model_config
    >>> from sake_jax.models import abstract, bytes_per_device, flatten_params
    >>> config = model_config("mdlm-owt").network
    >>> leaves = flatten_params(abstract(config))
    >>> bytes_per_device(config, leaves, {}) > bytes_per_device(config, leaves, {"fsdp": 4})
    True
    """
    axes = network.param_axes(config)
    return sum(
        math.prod(shard_shape(leaf.shape, axes[path], sizes)) * leaf.dtype.itemsize
        for path, leaf in leaves.items()
    )


def powers_above(count: int) -> Iterator[int]:
    """Powers of two above a number."""
    power = 1 << count.bit_length()
    while power <= MOST:
        yield power
        power *= 2


def device_memory() -> int:
    """Bytes of a device; of virtual ones on a CPU, their part of the machine's memory."""
    stats = jax.local_devices()[0].memory_stats() or {}
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return stats.get("bytes_limit", machine // jax.local_device_count())


def require_heads(config: NetworkConfig, sizes: Mapping[str, int]) -> None:
    """Refuses a mesh over which attention cannot be divided.

    >>> from sake_jax.conversion import model_config
    >>> require_heads(model_config("llada-8b").network, {"tensor": 8})
    >>> require_heads(model_config("llada-8b").network, {"tensor": 3})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: the mesh's tensor axis must divide the model's 32 heads, got 3; use 1 of the 3 ...
    """
    rule = f"the mesh's tensor axis must divide the model's {config.H} heads"
    tensor, devices = sizes.get("tensor", 1), math.prod(sizes.values())
    # Only what divides both can be had: the product of the axes stays the number of devices.
    possible = format_divisors(math.gcd(config.H, devices))
    remedy = f"use {possible} of the {devices} devices, and data or fsdp for the rest"
    require(config.H % tensor == 0, rule, tensor, remedy)
