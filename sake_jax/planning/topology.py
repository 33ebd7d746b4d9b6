"""Devices that are not here: described to the compiler, so that it compiles for them."""

import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from jax.experimental import topologies
from jax.sharding import Mesh

from sake_jax.checks import require
from sake_jax.chips import CHIPS, Chip
from sake_jax.planning.gpus import description
from sake_jax.sharding import MESH_AXES, format_divisors

QUIET = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}
"""What libtpu would otherwise ask a machine that has no TPU, and complain about."""
SHAPES = "v5e:2x4, v5e:4x4, v5p:2x2x1, v6e:1x1, h100:8 or a100:1"
PACKAGES = {"tpu": "libtpu", "cuda": "jax_cuda12_plugin"}
INSTALL = {"tpu": "libtpu", "cuda": "--no-deps jax-cuda12-plugin jax-cuda12-pjrt"}


class Topology(NamedTuple):
    """Some chips, and how they are connected."""

    name: str
    chip: Chip
    description: Any
    """As JAX has it."""

    @property
    def devices(self) -> int:
        return len(self.description.devices)

    def mesh(self, sizes: Mapping[str, int]) -> Mesh:
        """A mesh of all its devices."""
        shape = tuple(sizes.get(axis, 1) for axis in MESH_AXES)
        product = shape[0] * shape[1] * shape[2]
        rule = f"data × fsdp × tensor must be the {self.devices} devices of {self.name}"
        remedy = f"for instance data={self.devices}, or tensor={format_divisors(self.devices)}"
        require(product == self.devices, rule, shape, remedy)
        return topologies.make_mesh(self.description, shape, MESH_AXES)


def topology(name: str) -> Topology:
    """Chips by name and arrangement: "v5e:2x4", "v5p:2x2x1", "h100:8"."""
    kind, _, arrangement = name.lower().partition(":")
    rule = f"topology must be a chip of {', '.join(CHIPS)} and an arrangement"
    right = kind in CHIPS and re.fullmatch(r"\d+(x\d+)*", arrangement)
    require(right, rule, name, f"such as {SHAPES}")
    chip = CHIPS[kind]
    package = PACKAGES[chip.platform]
    rule = f"planning for {kind} needs the package {package}"
    remedy = f"pip install {INSTALL[chip.platform]}, of JAX's release"
    require(importlib.util.find_spec(package) is not None, rule, "none", remedy)
    describe = _tpu if chip.platform == "tpu" else _gpu
    try:
        return Topology(name, chip, describe(kind, arrangement))
    except Exception as error:  # the plugins raise what they like
        rule = f"the compiler for {kind} must know the arrangement"
        known = f"try one such as {SHAPES}"
        raise ValueError(f"{rule}, got {name!r} ({_first_line(error)}); {known}.") from error


def _tpu(kind: str, arrangement: str) -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    return topologies.get_topology_desc(platform="tpu", topology_name=f"{kind}:{arrangement}")


def _gpu(kind: str, arrangement: str) -> Any:
    return topologies.get_topology_desc(
        platform="cuda",
        topology_name=kind,
        topology=f"1x1x{arrangement}",
        target_config=description(CHIPS[kind]),
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else repr(error)
