"""What lm_eval's cache (`--use_cache`) keeps of a run."""

import json
from typing import Any

from lm_eval.api.model import CacheHook, hash_args

from sake_jax.checks import require

NAME = "sake_jax"


class Kept:
    """A cache of lm_eval's, if there is one.

    It tells requests apart by their arguments alone, and looks up no request with do_sample. So the
    model and its options are written down here, and texts of such requests under a name of our own.
    """

    def __init__(self, hook: CacheHook, identity: dict[str, Any]):
        self.hook, self.entries = hook, hook.dbdict
        if self.entries is None:
            return
        ours = json.dumps(identity, sort_keys=True)
        theirs = self.entries.get(NAME, ours if len(self.entries) == 0 else "another model's")
        rule, remedy = f"the cache must be of a run with {ours}", "name another with --use_cache"
        require(theirs == ours, rule, theirs, remedy)
        self.entries[NAME] = ours
        self.entries.commit()

    def refuse(self, wanted: dict[str, Any], repeats: int) -> None:
        """Refuses requests that the cache would give one answer for all repeats."""
        right = self.entries is None or repeats == 1 or wanted.get("do_sample")
        rule = "repeats with --use_cache must have do_sample=true in generation_kwargs"
        require(right, rule, wanted, "give --gen_kwargs do_sample=true, or leave the cache out")

    def texts(self, arguments: tuple[Any, ...], repeats: int) -> list[str] | None:
        """Those of a request with do_sample, if they are there."""
        if self.entries is None or not arguments[1].get("do_sample"):
            return None
        return self.entries.get(hash_args(NAME, (*arguments, repeats)))

    def keep_texts(self, arguments: tuple[Any, ...], texts: list[str]) -> None:
        """All repeats of a request."""
        if arguments[1].get("do_sample"):
            self.hook.add_partial(NAME, (*arguments, len(texts)), texts)
        else:
            self.hook.add_partial("generate_until", arguments, texts[0])

    def keep(self, kind: str, arguments: tuple[Any, ...], answer: Any) -> None:
        """The answer to one request."""
        self.hook.add_partial(kind, arguments, answer)

    def commit(self) -> None:
        """Returns when all is on the disk."""
        if self.entries is not None:
            self.entries.commit()
