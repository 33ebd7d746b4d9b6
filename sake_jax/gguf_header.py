"""The header of a GGUF file, walked once before anything is made of the numbers in it.

The gguf package believes what a header says about itself: an array that claims 2^40 entries keeps
it busy for hours. Here every count is held against the bytes that are there.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from sake_jax.checks import require

MAGIC = b"GGUF"
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of the types of single values, by their numbers in the format."""
STRING, ARRAY = 8, 9
LONGEST_NAME = 2**16
MOST_ENTRIES = 2**22
"""Of all arrays together. The largest vocabularies have a third; each entry costs the reader some
hundred bytes of memory."""
MOST_AXES = 4
AGAIN = "it may be truncated or damaged: download it again"


class HeaderError(ValueError):
    """A header that promises what the file cannot hold."""


def check_header(path: Path) -> None:
    """Refuses a file whose header does not fit into it; reads the header and no weights."""
    with path.open("rb") as file:
        magic = file.read(4)
        require(magic == MAGIC, f"{path} must begin with {MAGIC!r}", magic, "it is another format")
        try:
            Header(file, path.stat().st_size).walk()
        except HeaderError as error:
            raise ValueError(f"{path} must be a whole GGUF file, got {error}; {AGAIN}.") from error


class Header:
    """A position in a GGUF file's header, and what is left behind it."""

    def __init__(self, file: BinaryIO, size: int):
        self.file, self.size, self.entries = file, size, 0

    def walk(self) -> None:
        """Over all fields and descriptions of tensors."""
        self.take(4)  # the version
        tensors, fields = self.take(8), self.take(8)
        self.hold("tensors", tensors, each=24)
        self.hold("fields", fields, each=13)
        for _ in range(fields):
            self.string("a field's name", LONGEST_NAME)
            self.value(self.take(4))
        for _ in range(tensors):
            self.string("a tensor's name", LONGEST_NAME)
            self.tensor()

    def tensor(self) -> None:
        """One description: axes, type, place."""
        axes = self.take(4)
        self.insist(axes <= MOST_AXES, f"a tensor of {axes} axes")
        shape: Sequence[int] = [self.take(8) for _ in range(axes)]
        # No type has less than a bit for each number.
        self.insist(math.prod(shape) <= 8 * self.size, f"a tensor of shape {tuple(shape)}")
        self.skip(4 + 8)

    def value(self, kind: int) -> None:
        """One value of a field."""
        if kind == STRING:
            self.string("a text", self.size)
        elif kind == ARRAY:
            inner, count = self.take(4), self.take(8)
            self.insist(inner != ARRAY, "an array of arrays")
            self.hold("entries of an array", count, each=SCALARS.get(inner, 8))
            self.entries += count
            self.insist(self.entries <= MOST_ENTRIES, f"arrays of {self.entries:,} entries")
            for _ in range(count) if inner == STRING else ():
                self.value(inner)
            if inner != STRING:
                self.skip(count * self.bytes_of(inner))
        else:
            self.skip(self.bytes_of(kind))

    def bytes_of(self, kind: int) -> int:
        self.insist(kind in SCALARS, f"a value of the unknown type {kind}")
        return SCALARS[kind]

    def string(self, what: str, most: int) -> None:
        length = self.take(8)
        self.insist(length <= most, f"{what} of {length:,} bytes")
        self.skip(length)

    def hold(self, what: str, count: int, each: int) -> None:
        """Refuses a count of things for which the rest of the file has no room."""
        room = (self.size - self.file.tell()) // each
        self.insist(count <= room, f"{count:,} {what} in {self.size:,} bytes")

    def take(self, count: int) -> int:
        """A whole number of this many bytes."""
        data = self.file.read(count)
        self.insist(len(data) == count, f"an end after {self.size:,} bytes")
        return int.from_bytes(data, "little")

    def skip(self, count: int) -> None:
        self.file.seek(count, 1)
        self.insist(self.file.tell() <= self.size, f"an end after {self.size:,} bytes")

    def insist(self, condition: bool, otherwise: str) -> None:
        if not condition:
            raise HeaderError(otherwise)
