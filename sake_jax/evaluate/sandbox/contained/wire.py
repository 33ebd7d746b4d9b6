"""JSON lines between the caller, the server and the keepers."""

import json
import os

SHORTEST_BUFFER = 4096
"""Lines up to this length are written at once, so that those of several keepers do not mix."""


def answer(message: dict) -> None:
    """One line to the caller."""
    line = json.dumps(message).encode() + b"\n"
    assert len(line) <= SHORTEST_BUFFER or "libraries" in message, "lines may mix"
    while line:
        line = line[os.write(1, line) :]


class Lines:
    """What comes in on a descriptor, line by line."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.ended = False
        self._kept = bytearray()

    def read(self) -> list[dict]:
        """Waits until something comes in; the lines that are complete by then."""
        some = os.read(self.descriptor, 1 << 16)
        self.ended = not some
        self._kept += some
        if b"\n" not in some:
            return []
        *whole, rest = bytes(self._kept).split(b"\n")
        self._kept = bytearray(rest)
        return [json.loads(line) for line in whole]
