"""Where arrays live on a mesh: one table from the logical names of axes to mesh axes.

Parameters are placed by it when they are loaded. Inside a compiled program every array knows the
mesh its operands came with, so `constrain` needs no other word of it than the array.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax import Array
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

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

PADDED = ("vocab",)
"""Logical axes that are split even where their mesh axis does not divide them: parameters are
padded when they are loaded, and the last device has less of an activation than the others."""

Axes = tuple[str | None, ...]
HIDDEN: Axes = ("batch", None, "embed")
LOGITS: Axes = ("batch", None, "vocab")


def mesh(data: int = 1, fsdp: int = 1, tensor: int = 1) -> Mesh:
    """A device mesh: rows of the batch over `data`, widths over `fsdp`, heads over `tensor`.

    In a run of several processes it is one mesh over the devices of all of them, or, if the sizes
    fit into a process's own devices, one for each process.

    >>> dict(mesh(data=1).shape)
    {'data': 1, 'fsdp': 1, 'tensor': 1}
    """
    sizes = (data, fsdp, tensor)
    needed, there = math.prod(sizes), jax.local_device_count()
    everybody = needed == jax.device_count()
    rule = f"data × fsdp × tensor must be between 1 and the number of devices ({there}), a divisor"
    if jax.process_count() > 1:
        rule = f"data × fsdp × tensor must be all {jax.device_count()} devices, or divide the "
        rule += f"{there} of each process"
    fits = min(sizes) >= 1 and (everybody or there % needed == 0)
    products = format_divisors(there, *{jax.device_count()} - {there})
    remedy = f"choose sizes with a product of {products}, or see `sake-jax doctor`"
    require(fits, rule, sizes, remedy)
    devices = jax.devices() if everybody else jax.local_devices()[:needed]
    return arrange(sizes, devices)


def arrange(sizes: tuple[int, int, int], devices: Sequence[Any]) -> Mesh:
    """A mesh of these devices, so that neighbours on an axis are near each other.

    Args:
      sizes: of the axes data, fsdp and tensor; their product is the number of devices.
      devices: real ones, or those of a topology that is not here.

    >>> dict(arrange((1, 1, 1), jax.devices()[:1]).shape)
    {'data': 1, 'fsdp': 1, 'tensor': 1}
    """
    # An axis may take part of a physical one: a mesh of 8 × 2 on chips that stand 4 × 4.
    placed = mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    return Mesh(placed, MESH_AXES, axis_types=(AxisType.Auto,) * 3)


def mesh_sizes(text: str | None) -> dict[str, int]:
    """Sizes for `mesh` from words such as "fsdp=4,tensor=2"; none for None.

    >>> mesh_sizes("fsdp=4,tensor=2")
    {'fsdp': 4, 'tensor': 2}
    """
    sizes: dict[str, int] = {}
    for part in (text or "").split(","):
        name, _, size = part.strip().partition("=")
        if name:
            rule = f"mesh must name axes of {', '.join(MESH_AXES)} with sizes"
            good = name in MESH_AXES and size.isdigit() and int(size) > 0
            require(good, rule, part, "write it as 'fsdp=4,tensor=2'")
            sizes[name] = int(size)
    return sizes


def format_divisors(number: int, *more: int) -> str:
    """The divisors of a number, and more numbers, for an error message.

    >>> format_divisors(6)
    '1, 2, 3 or 6'
    """
    *others, last = map(str, (*divisors(number), *more))
    return f"{', '.join(others)} or {last}" if others else last


def divisors(number: int) -> list[int]:
    """All divisors of a number, the smallest first.

    >>> divisors(6)
    [1, 2, 3, 6]
    """
    return [size for size in range(1, number + 1) if number % size == 0]


def spec(shape: tuple[int, ...], axes: Axes, sizes: Mapping[str, int]) -> PartitionSpec:
    """Which mesh axis splits which dimension of an array with these logical axes.

    A dimension that its mesh axis does not divide stays whole, but for those of `PADDED`, and no
    mesh axis is used twice.

    >>> tuple(spec((10, 8), ("vocab", "embed"), {"tensor": 4, "fsdp": 3}))
    ('tensor', None)
    """
    used: list[str | None] = []
    for size, name in zip(shape, axes, strict=True):
        axis = RULES.get(name or "", "")
        splits = axis is not None and axis in sizes and (name in PADDED or size % sizes[axis] == 0)
        used.append(axis if splits and axis not in used else None)
    return PartitionSpec(*used)


def padded(shape: tuple[int, ...], axes: Axes, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a parameter on a mesh with these sizes.

    >>> padded((10, 8), ("vocab", "embed"), {"tensor": 4, "fsdp": 3})
    (12, 8)
    """
    parts = [sizes.get(RULES[name], 1) if name in PADDED else 1 for name in axes]
    return tuple(-(-size // part) * part for size, part in zip(shape, parts, strict=True))


def shard_shape(shape: tuple[int, ...], axes: Axes, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """What one device of a mesh with these sizes holds of a parameter.

    >>> shard_shape((10, 8), ("vocab", "embed"), {"tensor": 4, "fsdp": 2})
    (3, 4)
    """
    split, shape = spec(shape, axes, sizes), padded(shape, axes, sizes)
    return tuple(n // sizes.get(axis or "", 1) for n, axis in zip(shape, split, strict=True))


def sharding(mesh: Mesh | AbstractMesh, shape: tuple[int, ...], axes: Axes) -> NamedSharding:
    """The sharding of an array with these logical axes on a mesh.

    >>> tuple(sharding(mesh(), (10, 8), ("vocab", "embed")).spec)
    ('tensor', 'fsdp')
    """
    return NamedSharding(mesh, spec(shape, axes, dict(mesh.shape)))


def mesh_of(tree: Any) -> AbstractMesh | None:
    """The mesh that arrays, or their traces inside a program, live on; None for one device.

    >>> mesh_of({"weight": jax.numpy.ones(3)}) is None  # it is on one device
    True
    """
    for leaf in jax.tree.leaves(tree):
        mesh = jax.typeof(leaf).sharding.mesh
        if mesh.size > 1:
            return mesh
    return None


def compilers_mesh(tree: Any) -> AbstractMesh | None:
    """The mesh that arrays live on, where the compiler splits them; None for one device, and
    inside `shard_map`, where programs are split by hand.

    >>> compilers_mesh(jax.numpy.ones(3)) is None
    True
    """
    mesh = mesh_of(tree)
    by_hand = mesh is None or all(kind != AxisType.Auto for kind in mesh.axis_types)
    return None if by_hand else mesh


def constrain(x: Array, axes: Axes, like: Any = None) -> Array:
    """Keeps an array inside a program split by its logical axes; as it is without a mesh.

    The mesh is that of the array, or of the arrays `like` where it was made from nothing. Axes
    at the end that have no name may be left out.

    >>> x = jax.numpy.ones((2, 3))
    >>> constrain(x, ("batch",)) is x  # there is no mesh
    True
    """
    mesh = compilers_mesh(x if like is None else like)
    if mesh is None:
        return x
    kinds = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    sizes = {name: size for name, size, kind in kinds if kind == AxisType.Auto}
    axes = axes + (None,) * (x.ndim - len(axes))
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec(x.shape, axes, sizes)))


def constrain_rows(tree: Any, axes: Axes = ("batch",), like: Any = None) -> Any:
    """`constrain` for all arrays of a tree that are long enough: their first axes are these.

    >>> rows = constrain_rows({"tokens": jax.numpy.ones((2, 3)), "step": jax.numpy.int32(0)})
    >>> rows["tokens"].shape
    (2, 3)
    """
    long = lambda leaf: leaf.ndim >= len(axes)  # noqa: E731
    return jax.tree.map(lambda x: constrain(x, axes, like) if long(x) else x, tree)
