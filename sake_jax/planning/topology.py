"""Devices that are not here: described to the compiler, so that it compiles for them."""

import importlib.util
import math
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from jax.experimental import topologies
from jax.sharding import AbstractMesh, AxisType, Mesh

from sake_jax.checks import require
from sake_jax.chips import CHIPS, Chip
from sake_jax.planning.gpus import description
from sake_jax.sharding import MESH_AXES, arrange, format_divisors

QUIET = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    # A lock file has one process at a time use a TPU; what is only compiled needs none.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
"""What libtpu would otherwise ask a machine that has no TPU, and complain about."""
SHAPES = "v5e:2x4, v5e:4x4, v5p:2x2x1, v6e:1x1, h100:8 or a100:1"
PACKAGES = {"tpu": "libtpu", "cuda": "jax_cuda12_plugin"}
INSTALL = {
    "tpu": 'pip install "sake-jax[tpu]"',
    "cuda": "pip install --no-deps jax-cuda12-plugin jax-cuda12-pjrt, of JAX's release",
}
HOST = (2, 2, 1)
"""The chips of a TPU host, where there are as many."""


class Topology(NamedTuple):
    """Some chips, and how they are connected."""

    name: str
    chip: Chip
    description: Any
    """As JAX has it; only the number of chips, where no compiler is to be asked."""

    @property
    def devices(self) -> int:
        return len(self.description.devices) if self.compiles else self.description

    @property
    def compiles(self) -> bool:
        """Whether the compiler for these chips is here."""
        return not isinstance(self.description, int)

    def mesh(self, sizes: Mapping[str, int]) -> Mesh | AbstractMesh:
        """A mesh of all its devices."""
        shape = (sizes.get("data", 1), sizes.get("fsdp", 1), sizes.get("tensor", 1))
        rule = f"data × fsdp × tensor must be the {self.devices} devices of {self.name}"
        remedy = f"for instance data={self.devices}, or tensor={format_divisors(self.devices)}"
        require(math.prod(shape) == self.devices, rule, shape, remedy)
        if not self.compiles:
            return AbstractMesh(shape, MESH_AXES, axis_types=(AxisType.Auto,) * 3)
        return arrange(shape, list(self.description.devices))


def topology(name: str, compile_it: bool = True) -> Topology:
    """Chips by name and arrangement.

    Args:
      name: such as "v5e:2x4", "v5p:2x2x1" or "h100:8".
      compile_it: whether the compiler for them will be asked, which then must be here. What is
        only counted needs no compiler.

    >>> topology("v5e:2x4", compile_it=False).devices
    8
    """
    kind, _, arrangement = name.lower().partition(":")
    rule = f"topology must be a chip of {', '.join(CHIPS)} and an arrangement"
    right = kind in CHIPS and re.fullmatch(r"[1-9]\d*(x[1-9]\d*){0,2}", arrangement)
    require(right, rule, name, f"such as {SHAPES}")
    chip, bounds = CHIPS[kind], tuple(map(int, arrangement.split("x")))
    if not compile_it:
        return Topology(name, chip, math.prod(bounds))
    package = PACKAGES[chip.platform]
    rule = f"asking the compiler for {kind} needs the package {package}"
    remedy = f"{INSTALL[chip.platform]}; or do not ask it: plan has --no-compile"
    require(importlib.util.find_spec(package) is not None, rule, "none", remedy)
    try:
        if chip.platform == "tpu":
            return Topology(name, chip, _tpu(f"{kind}:{arrangement}", bounds))
        return Topology(name, chip, _gpu(kind, arrangement))
    except Exception as error:  # the plugins raise what they like
        rule = f"the compiler for {kind} must know the arrangement"
        known = f"try one such as {SHAPES}"
        raise ValueError(f"{rule}, got {name!r} ({_first_line(error)}); {known}.") from error


def _tpu(name: str, bounds: tuple[int, ...]) -> Any:
    for variable, value in QUIET.items():
        os.environ.setdefault(variable, value)
    # A part of a host is told as a host of that size: some releases refuse it otherwise.
    host = [min(size, most) for size, most in zip((*bounds, 1, 1), HOST, strict=False)]
    return topologies.get_topology_desc(
        platform="tpu", topology_name=name, chips_per_host_bounds=tuple(host)
    )


def _gpu(kind: str, arrangement: str) -> Any:
    return topologies.get_topology_desc(
        platform="cuda",
        topology_name=kind,
        topology=f"1x1x{arrangement}",
        target_config=description(CHIPS[kind]),
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else repr(error)
