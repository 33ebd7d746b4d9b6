"""Who draws which batches, where several processes work on one generation.

A row's tokens belong to its key, so any division writes the same texts. The processes go in rounds,
a batch for each, and tell each other what came out: all know the same rows, and process 0 writes
them down as if it had drawn them.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import jax

from sake_jax.generation.prompts import Batch
from sake_jax.generation.result import Row
from sake_jax.generation.stack import Record
from sake_jax.models import LanguageModel
from sake_jax.sharding import (
    broadcast_from_leader,
    gather_from_all,
    is_leader,
    several_processes,
    spans_processes,
)

Value = TypeVar("Value")


class BatchResult(NamedTuple):
    """What came of a batch."""

    part: Batch
    rows: list[Row]
    """Those that are finished."""
    bad: list
    """(step, prompt, sample) of those that are not numbers."""
    kept: Record


@dataclasses.dataclass(frozen=True)
class Division:
    """`count` parts, of which this process draws one; `together` if others take part at all."""

    index: int = 0
    count: int = 1
    together: bool = False

    @property
    def writes(self) -> bool:
        """Whether this process writes files and shows a bar."""
        return not self.together or is_leader()

    def broadcast_from_leader(self, make: Callable[[], Value]) -> Value:
        """What process 0 makes, for all that take part."""
        return broadcast_from_leader(make) if self.together else make()

    def rows(self, missing: Mapping[int, Sequence[int]], batch: int, together: int) -> int:
        """Rows of a batch, at most: fewer where that gives every process some of them."""
        if self.count == 1:
            return batch
        share = -(-sum(map(len, missing.values())) // self.count)
        return min(batch, max(share, together))

    def rounds(self, work: Sequence[Batch]) -> int:
        """How many batches a process draws."""
        return -(-len(work) // self.count)

    def run(
        self, draw: Callable[[Batch], BatchResult], work: Sequence[Batch]
    ) -> Iterator[BatchResult]:
        """Draws batches, and gives those of all processes, in their order."""
        if self.count == 1:
            yield from map(draw, work)
            return
        for at in range(0, len(work), self.count):
            parts = work[at : at + self.count]
            mine = draw(parts[self.index]) if self.index < len(parts) else None
            yield from (ran for ran in gather_from_all(mine) if ran is not None)


def divide_work(lm: LanguageModel, divided: bool) -> Division:
    """How the processes of a run work on one generation.

    >>> import sake_jax as sj
    >>> divide_work(sj.load("tinystories"), divided=True)  # this process is alone
    Division(index=0, count=1, together=False)

    Args:
      lm: the model; where it is spread over the devices of all processes, all draw each batch.
      divided: whether processes that each hold the whole model share the batches among them.
    """
    if not several_processes():
        return Division()
    if spans_processes(lm.params):  # one program for all
        return Division(together=True)
    if not divided:
        return Division()
    return Division(jax.process_index(), jax.process_count(), together=True)
