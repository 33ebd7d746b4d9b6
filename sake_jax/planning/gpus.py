"""GPUs as the compiler wants to have them described."""

from collections.abc import Mapping
from typing import Any

from sake_jax.chips import Chip

TEMPLATE = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: {shared}
  shared_memory_per_block_optin: {optin}
  core_count: {cores} fpus_per_core: {units} clock_rate_ghz: {clock}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth} l2_cache_size: {cache} device_memory_size: {memory}
  cuda_compute_capability {{ major: {major} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 }}
device_description_str: "{name}"
"""
"""What the compiler wants to know of a GPU."""
GPUS: Mapping[str, dict[str, Any]] = {
    "h100": {
        "name": "NVIDIA H100 80GB HBM3",
        "shared": 233472,
        "optin": 232448,
        "cores": 132,
        "units": 128,
        "clock": 1.98,
        "cache": 52428800,
        "major": 9,
    },
    "a100": {
        "name": "NVIDIA A100-SXM4-80GB",
        "shared": 167936,
        "optin": 166912,
        "cores": 108,
        "units": 64,
        "clock": 1.41,
        "cache": 41943040,
        "major": 8,
    },
}


def description(chip: Chip) -> str:
    """A chip's description, for a compiler that does not see it."""
    sizes = {"bandwidth": int(chip.bandwidth), "memory": int(chip.memory)}
    return TEMPLATE.format(**sizes, **GPUS[chip.name])
