"""What chips can do, by their makers' data sheets."""

import dataclasses

import jax

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
    kinds: tuple[str, ...] = ()
    """How JAX calls such a device: these words are in its `device_kind`."""


# Memory is what the compiler lets a program use, a little less than what is sold.
CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v5e", "tpu", 15.75 * GIB, 197e12, 819e9, 200e9, 1.5e9, ("v5 lite", "v5e")),
        Chip("v5p", "tpu", 95.74 * GIB, 459e12, 2765e9, 600e9, 1.75e9, ("v5p", "TPU v5")),
        Chip("v6e", "tpu", 31.25 * GIB, 918e12, 1638e9, 400e9, 1.75e9, ("v6 lite", "v6e")),
        Chip("h100", "cuda", 80e9, 989e12, 3350e9, 450e9, kinds=("H100",)),
        Chip("a100", "cuda", 80e9, 312e12, 2039e9, 300e9, kinds=("A100",)),
    )
}
"""By name."""


def local_chip() -> Chip | None:
    """The chip that programs run on here; None for a CPU, and for chips that are not listed.

    >>> local_chip() is None or local_chip() in CHIPS.values()
    True
    """
    kind = jax.devices()[0].device_kind.lower()
    # The longest words first: "TPU v5 lite" is no "TPU v5".
    known = [(word.lower(), chip) for chip in CHIPS.values() for word in chip.kinds]
    for word, chip in sorted(known, key=lambda pair: -len(pair[0])):
        if word in kind:
            return chip
    return None
