"""The prompts of a run, each with all its repeats, in batches."""

import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax

import sake_jax as sj
from sake_jax.evaluate.harness.encoding import Ids
from sake_jax.evaluate.harness.options import Options, TextOptions
from sake_jax.generation import prompt_room
from sake_jax.models import LanguageModel


class Document(NamedTuple):
    """A prompt, and how its texts are drawn."""

    chosen: TextOptions
    repeats: int
    prompt: Ids
    text: str

    @property
    def room(self) -> int:
        """Columns that its prompt gets; see `prompt_room`."""
        return prompt_room(len(self.prompt))

    @property
    def name(self) -> int:
        """Its identity for random keys."""
        return zlib.crc32(self.text.encode()) >> 1


def parts(documents: Iterable[Document], batch: int) -> Iterator[list[Document]]:
    """Documents that fit one program, those with most room first. A run that goes on is cut in
    the same places."""
    shape = lambda d: (d.chosen, d.repeats, d.room)  # noqa: E731
    order = sorted(documents, key=lambda d: (shape(d), d), reverse=True)
    for (_, repeats, _), group in itertools.groupby(order, shape):
        yield from _cut(list(group), max(1, batch // repeats))


def _cut(group: Sequence[Document], size: int) -> Iterator[list[Document]]:
    """A batch each; the last part is larger, for a smaller one would be another program."""
    # Two prompts may have one name, but not in one part.
    first = {document.name: document for document in reversed(group)}
    alone = [document for document in group if first[document.name] == document]
    last = max(len(alone) - len(alone) % size - size, 0)
    for at in range(0, last, size):
        yield alone[at : at + size]
    yield alone[last:]
    if len(alone) < len(group):
        yield from _cut([document for document in group if document not in alone], size)


def write(
    lm: LanguageModel, part: Sequence[Document], options: Options, batch: int
) -> list[list[str]]:
    """texts[document][repeat] of documents that ask for the same."""
    chosen = part[0].chosen
    generated = sj.generate(
        lm,
        options.request_for(chosen).build(lm),
        [document.prompt for document in part],
        key=jax.random.key(options.seed),
        samples=part[0].repeats,
        batch=batch,
        stop=chosen.stop,
        names=[document.name for document in part],
    )
    return [[text or "" for text in texts] for texts in generated.texts]
