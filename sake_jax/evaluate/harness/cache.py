"""What lm_eval's cache (`--use_cache`) keeps of a run."""

import json
from collections.abc import Iterable
from typing import Any

from lm_eval.api.model import CacheHook, hash_args

from sake_jax.checks import require
from sake_jax.evaluate.harness.encoding import Pair

NAME = "sake_jax"
LAST = "sake_jax, the last part"
Arguments = tuple[Any, ...]
Entry = tuple[str, Arguments, Any]
"""A kind of request, its arguments, and the answer."""


class RequestCache:
    """A cache of lm_eval's, if there is one.

    It tells requests apart by their arguments alone, and looks up no request with do_sample. So the
    model and its options are written down here, and texts of such requests under a name of our own.
    """

    def __init__(self, hook: CacheHook, identity: dict[str, Any]):
        self.entries = hook.dbdict
        if self.entries is None:
            return
        ours = json.dumps(identity, sort_keys=True)
        theirs = self.entries.get(NAME, ours if len(self.entries) == 0 else "another model's")
        rule, remedy = f"the cache must be of a run with {ours}", "name another with --use_cache"
        require(theirs == ours, rule, theirs, remedy)
        self.entries[NAME] = ours
        self._write(self.entries.get(LAST, {}))

    def refuse(self, wanted: dict[str, Any], repeats: int) -> None:
        """Refuses requests that the cache would give one answer for all repeats."""
        right = self.entries is None or repeats == 1 or wanted.get("do_sample")
        rule = "repeats with --use_cache must have do_sample=true in generation_kwargs"
        require(right, rule, wanted, "give --gen_kwargs do_sample=true, or leave the cache out")

    def texts(self, arguments: Arguments, repeats: int) -> list[str] | None:
        """Those of a request with do_sample, if they are there."""
        if self.entries is None or not arguments[1].get("do_sample"):
            return None
        return self.entries.get(hash_args(NAME, (*arguments, repeats)))

    def score(self, kind: str, pair: Pair) -> Any:
        """That of a pair of a request with several, if it is there."""
        return None if self.entries is None else self.entries.get(hash_args(NAME, (kind, *pair)))

    def keep(self, part: Iterable[Entry]) -> None:
        """Keeps all answers of a part or, if the run is killed meanwhile, none.

        The rest of the run is then cut into the same parts as ever, and computes the same numbers.
        """
        if self.entries is None:
            return
        answers = {hash_args(kind, arguments): answer for kind, arguments, answer in part}
        self.entries[LAST] = answers  # in one piece; a run that goes on writes what is missing
        self.entries.commit()
        self._write(answers)

    def _write(self, answers: dict[str, Any]) -> None:
        """Returns when all is on the disk."""
        assert self.entries is not None
        for key, answer in answers.items():
            if key not in self.entries:
                self.entries[key] = answer
        self.entries.commit()


def text_entry(arguments: Arguments, texts: list[str]) -> Entry:
    """All repeats of a request, where they are looked for."""
    if arguments[1].get("do_sample"):
        return NAME, (*arguments, len(texts)), texts
    return "generate_until", arguments, texts[0]


def score_entry(kind: str, pair: Pair, score: tuple[float, bool]) -> Entry:
    """A pair of a request that has several."""
    return NAME, (kind, *pair), tuple(score)
