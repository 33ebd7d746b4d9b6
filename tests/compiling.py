"""Compiling is most of what the tests do: XLA is asked for code made quickly, not quick code."""

import importlib.metadata

QUICKLY = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
# Another compiler of fused loops, twice as quick; jaxlib 0.12 has only one and refuses the flag.
if importlib.metadata.version("jaxlib").startswith("0.10."):
    QUICKLY += " --xla_cpu_use_fusion_emitters=false"


def flags(devices: int) -> str:
    """XLA_FLAGS for that many virtual devices."""
    return f"--xla_force_host_platform_device_count={devices} {QUICKLY}"
