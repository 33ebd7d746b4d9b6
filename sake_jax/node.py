"""The base of all our pytree classes."""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax
from flax import struct

AnyNode = TypeVar("AnyNode", bound="Node")


@dataclass_transform(frozen_default=True, field_specifiers=(struct.field,))
class Node:
    """A frozen dataclass that is a pytree, as `flax.struct.PyTreeNode`, whose class counts.

    JAX 0.10 finds the structures of two classes equal if they were registered as dataclasses with
    the same number of leaves and equal static fields. The table of programs behind `jax.jit` then
    takes one for the other where their hashes collide, in about 1 of 50 processes: a top-k filter
    ran as a temperature. Classes that are registered by their own functions are told apart.

        >>> from flax import struct
        >>> class Scaled(Node):
        ...     factor: float
        ...     centred: bool = struct.field(pytree_node=False, default=False)
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True, **options)(cls)
        leaves, static = [], []
        for field in dataclasses.fields(cls):  # type: ignore[arg-type], one since the line above
            part = leaves if field.metadata.get("pytree_node", True) else static
            part.append(field.name)
        keys = [jax.tree_util.GetAttrKey(name) for name in leaves]

        def children(node: Any) -> tuple[list[Any], tuple[Any, ...]]:
            return [getattr(node, n) for n in leaves], tuple(getattr(node, n) for n in static)

        def children_with_keys(node: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
            values, fixed = children(node)
            return list(zip(keys, values, strict=True)), fixed

        def restore(fixed: tuple[Any, ...], values: Any) -> Any:
            node = object.__new__(cls)
            # Past __init__: JAX also fills nodes with placeholders.
            vars(node).update(zip(static, fixed, strict=True))
            vars(node).update(zip(leaves, values, strict=True))
            return node

        jax.tree_util.register_pytree_with_keys(cls, children_with_keys, restore, children)

    def replace(self: AnyNode, **changes: Any) -> AnyNode:
        """A copy with other values in some fields."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]
