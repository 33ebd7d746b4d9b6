"""What chips can do, by their makers' data sheets."""

import dataclasses

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """One accelerator chip."""

    name: str
    platform: str
    """tpu or cuda."""
    memory: float
    """Bytes that a program can use."""
    flops: float
    """Of bfloat16 matrix products, a second."""
    bandwidth: float
    """Bytes of its own memory, a second."""
    link: float
    """Bytes to its neighbours, a second, in one direction."""
    clock: float | None = None
    """Of the cycles that the compiler estimates, where it does."""


# Memory is what the compiler lets a program use, a little less than what is sold.
CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v5e", "tpu", 15.75 * GIB, 197e12, 819e9, 200e9, 1.5e9),
        Chip("v5p", "tpu", 95.74 * GIB, 459e12, 2765e9, 600e9, 1.75e9),
        Chip("v6e", "tpu", 31.25 * GIB, 918e12, 1638e9, 400e9, 1.75e9),
        Chip("h100", "cuda", 80e9, 989e12, 3350e9, 450e9),
        Chip("a100", "cuda", 80e9, 312e12, 2039e9, 300e9),
    )
}
"""By name."""
