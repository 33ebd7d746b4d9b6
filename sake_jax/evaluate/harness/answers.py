"""Answers to requests for likelihoods, each made of the scores of its pairs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lm_eval.api.instance import Instance

from sake_jax.evaluate.harness.cache import Entry, RequestCache, score_entry
from sake_jax.evaluate.harness.encoding import Pair
from sake_jax.evaluate.harness.scores import Score, parts
from sake_jax.progress import bar


class Answers:
    """Requests with their pairs, of which a text that exceeds the context has several."""

    def __init__(
        self,
        requests: Sequence[Instance],
        wanted: Sequence[Sequence[Pair]],
        answer: Callable[[list[Score]], Any],
    ):
        self.requests, self.wanted, self.answer = requests, wanted, answer
        self.known: dict[Pair, Score] = {}
        self.places: dict[Pair, list[int]] = {}
        for at, pairs in enumerate(wanted):
            for pair in pairs:
                self.places.setdefault(pair, []).append(at)

    def all(
        self, score: Callable[[list[Pair]], list[Score]], cache: RequestCache, progress: bool
    ) -> list[Any]:
        """One for each request; each is kept as soon as it is known."""
        for at, pairs in enumerate(self.wanted):
            for pair in pairs if len(pairs) > 1 else ():
                if stored := cache.score(self.requests[at].request_type, pair):
                    self.known[pair] = Score(*stored)
        left = [pair for pair in self.places if pair not in self.known]
        with bar("scoring", len(left), progress) as advance:
            for part in parts(left):
                self.known |= dict(zip(part, score(part), strict=True))
                cache.keep(self._entries(part))
                advance(len(part))
        return [self._made(at) for at in range(len(self.wanted))]

    def _entries(self, part: Sequence[Pair]) -> Iterator[Entry]:
        """What is new with a part: answers, and scores that answers still wait for."""
        for at in sorted({at for pair in part for at in self.places[pair]}):
            request = self.requests[at]
            if all(pair in self.known for pair in self.wanted[at]):
                yield request.request_type, request.args, self._made(at)
            else:
                own = [pair for pair in part if pair in self.wanted[at]]
                yield from (score_entry(request.request_type, p, self.known[p]) for p in own)

    def _made(self, at: int) -> Any:
        return self.answer([self.known[pair] for pair in self.wanted[at]])
