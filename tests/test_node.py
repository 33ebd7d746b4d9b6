"""Pytree classes that jit tells apart."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from flax import struct

import registry
import sake_jax as sj


class Doubled(sj.Node):
    x: object
    name: str = struct.field(pytree_node=False, default="a")


class Tripled(sj.Node):
    x: object
    name: str = struct.field(pytree_node=False, default="a")


def test_structures_of_two_classes_differ():
    assert jax.tree.structure(Doubled(1.0)) != jax.tree.structure(Tripled(1.0))
    assert jax.tree.structure(Doubled(1.0)) == jax.tree.structure(Doubled(2.0))
    assert jax.tree.structure(Doubled(1.0)) != jax.tree.structure(Doubled(1.0, "b"))


def test_guidances_of_two_classes_differ():
    found = [jax.tree.structure(entry.guidance) for entry in registry.ENTRIES.values()]
    kinds = [type(entry.guidance) for entry in registry.ENTRIES.values()]
    for mine, kind in zip(found, kinds, strict=True):
        for other, its in zip(found, kinds, strict=True):
            assert kind is its or mine != other


@pytest.mark.slow
def test_jit_never_takes_one_for_the_other():
    """With dataclasses as JAX registers them about 1 of 40 pairs is confused."""
    wrong = []
    for _ in range(200):

        class One(sj.Node):
            x: object

        class Two(sj.Node):
            x: object

        read = jax.jit(lambda node, kind=One: node.x * (2.0 if isinstance(node, kind) else 3.0))
        wrong.append((float(read(One(1.0))), float(read(Two(1.0)))) != (2.0, 3.0))
    assert not any(wrong)


def test_is_a_frozen_dataclass_with_named_leaves():
    node = Doubled(jnp.ones(2), "b")
    moved = jax.tree.map(lambda leaf: leaf + 1, node)
    assert moved.name == "b"
    assert moved.x.tolist() == [2, 2]
    assert node.replace(name="c").name == "c"
    assert Doubled(1.0).replace(name="c") == Doubled(1.0, "c")
    paths = jax.tree_util.tree_leaves_with_path(node)
    assert jax.tree_util.keystr(paths[0][0]) == ".x"
    with pytest.raises(dataclasses.FrozenInstanceError):
        node.name = "d"  # type: ignore[misc]
