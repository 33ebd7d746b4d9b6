"""Where arrays live on a mesh: one table from the logical names of axes to mesh axes."""

import math
from collections.abc import Mapping

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sake_jax.checks import require

MESH_AXES = ("data", "fsdp", "tensor")

RULES: Mapping[str, str] = {
    "batch": "data",
    "embed": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "experts": "fsdp",
}
"""Logical axis to mesh axis; names that are not here stay whole on every device."""


def mesh(data: int = 1, fsdp: int = 1, tensor: int = 1) -> Mesh:
    """A device mesh: rows of the batch over `data`, widths over `fsdp`, heads over `tensor`.

    >>> dict(mesh(data=1).shape)
    {'data': 1, 'fsdp': 1, 'tensor': 1}
    """
    sizes = (data, fsdp, tensor)
    needed, there = math.prod(sizes), jax.device_count()
    rule = f"data × fsdp × tensor must be between 1 and the number of devices ({there})"
    fits = min(sizes) >= 1 and needed <= there
    require(fits, rule, sizes, "choose a smaller mesh, or see `sake-jax doctor` for the devices")
    devices = jax.devices()[:needed]
    return jax.make_mesh(sizes, MESH_AXES, devices=devices, axis_types=(AxisType.Auto,) * 3)


def spec(
    shape: tuple[int, ...], axes: tuple[str | None, ...], sizes: Mapping[str, int]
) -> PartitionSpec:
    """Which mesh axis splits which dimension of an array with these logical axes.

    A dimension that its mesh axis does not divide stays whole, and no mesh axis is used twice.

    >>> tuple(spec((10, 8), ("vocab", "embed"), {"tensor": 4, "fsdp": 2}))
    (None, 'fsdp')
    """
    used: list[str | None] = []
    for size, name in zip(shape, axes, strict=True):
        axis = RULES.get(name or "")
        divides = axis is not None and size % sizes.get(axis, 1) == 0
        used.append(axis if divides and axis not in used else None)
    return PartitionSpec(*used)


def shard_shape(
    shape: tuple[int, ...], axes: tuple[str | None, ...], sizes: Mapping[str, int]
) -> tuple[int, ...]:
    """What one device of a mesh with these sizes holds.

    >>> shard_shape((12, 8), ("vocab", "embed"), {"tensor": 4, "fsdp": 2})
    (3, 4)
    """
    split = spec(shape, axes, sizes)
    return tuple(n // sizes.get(axis or "", 1) for n, axis in zip(shape, split, strict=True))


def sharding(mesh: Mesh, shape: tuple[int, ...], axes: tuple[str | None, ...]) -> NamedSharding:
    """The sharding of an array with these logical axes on a mesh."""
    return NamedSharding(mesh, spec(shape, axes, dict(mesh.shape)))
