"""What a generation gives back, row by row and as arrays."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sake_jax.checks import require, shorten
from sake_jax.generation.settings import rebuild
from sake_jax.info import Info
from sake_jax.journal import Journal, Line, wrong_line
from sake_jax.models import ModelConfig
from sake_jax.text import tokenizer as saved_tokenizer

if TYPE_CHECKING:
    from sake_jax.viewer import HtmlPage

ENDINGS = ("length", "token", "string")
"""Why a row ended: all columns are written, an end token, a stop string."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One sample of one prompt.

    >>> row = Row(0, 0, [5, 6], [True, False], [-0.1, 0.0], "cat", ended="token", steps=2)
    >>> [token for token, own in zip(row.tokens, row.written, strict=True) if own]  # its text
    [5]
    """

    prompt: int
    sample: int
    tokens: list[int]
    """All columns that could be written, what stands after the end included."""
    written: list[bool]
    """Which of them are the sample's text."""
    log_p: list[float]
    """Log-probability of each under the guided distribution it was written from; 0 elsewhere, and
    for noise of a process without mask token that happened to stay."""
    text: str | None
    """None for models without a tokenizer."""
    ended: str
    """See `ENDINGS`."""
    steps: int
    """Evaluations of the network by its batch until then."""


@dataclasses.dataclass(frozen=True)
class Generation:
    """Q prompts, M samples of each, N columns.

    >>> import jax
    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> sampler = sj.masked(lm, length=8, guidance=sj.sake(1.0), draw=sj.temperature(0.7))
    >>> out = sj.generate(lm, sampler, ["once upon a time"], samples=2, key=jax.random.key(0))
    >>> out.tokens.shape, out.ended
    ((1, 2, 8), [['length', 'length']])
    """

    rows: list[Row]
    """Prompt by prompt, sample by sample."""
    samples: int
    settings: dict[str, Any]
    """All that `sake_jax.replay` needs to write the same tokens again."""
    info: Info | None = None
    """What happened at each of the plan's S steps, (S, Q M, ...), zeros for those not taken; None
    where rows were read from an earlier, interrupted run. Canvases of different widths end
    together, and `start` counts from the first column that is written."""
    trajectory: np.ndarray | None = None
    """(S, Q M, N) tokens after each step, if asked for, and if `info` is there."""
    given_tokenizer: Any = None
    """Of a model of one's own, which has no folder to find it in."""

    def __repr__(self) -> str:
        prompts = len(self.rows) // self.samples if self.samples else 0
        first = self.rows[0] if self.rows else None
        said = "" if first is None else f", first: {shorten(_said(first))}"
        return f"Generation({prompts} prompts, {self.samples} samples of each{said})"

    @property
    def texts(self) -> list[list[str | None]]:
        """texts[prompt][sample]"""
        return _grouped([row.text for row in self.rows], self.samples)

    @property
    def tokens(self) -> np.ndarray:
        """(Q, M, N)"""
        return self._array("tokens", np.int32)

    @property
    def written(self) -> np.ndarray:
        """(Q, M, N) which tokens are a sample's text."""
        return self._array("written", bool)

    @property
    def log_p(self) -> np.ndarray:
        """(Q, M, N) nats; 0 where nothing was written."""
        return self._array("log_p", np.float32)

    @property
    def ended(self) -> list[list[str]]:
        """ended[prompt][sample]: "length", "token" or "string"."""
        return _grouped([row.ended for row in self.rows], self.samples)

    @property
    def config(self) -> ModelConfig:
        """The config of the model that wrote it."""
        return rebuild(self.settings["model"]["config"])

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer, given or beside its weights, or None where there is none."""
        if self.given_tokenizer is not None:
            return self.given_tokenizer
        folder = self.settings["model"]["folder"]
        try:
            return saved_tokenizer(None if folder is None else Path(folder))
        except ValueError:
            return None

    def save(self, folder: str | Path) -> Path:
        """Writes settings.json and rows.jsonl, as `generate(..., save=folder)` does."""
        with Journal(folder, self.settings) as journal:
            done = finished(journal)
            new = (row for row in self.rows if (row.prompt, row.sample) not in done)
            journal.append(dataclasses.asdict(row) for row in new)
        return Path(folder)

    def to_html(
        self,
        beside: "Generation | None" = None,
        *,
        names: Sequence[str] = ("guided", "unguided"),
        tokenizer: Any = None,
    ) -> "HtmlPage":
        """One page, without network, to watch the canvas fill: a `sake_jax.viewer.HtmlPage`.

        Notebooks show it, and its `save` writes it to a file. It needs a generation with
        trajectory=True of a sampler with record="full".

        Args:
          beside: another generation of the same prompts, such as one without guidance.
          names: what the two are called.
          tokenizer: the model's own by default; tokens are shown as ids where it has none.
        """
        # The one import upwards: the library offers the page, a tool draws it. It stands here, so
        # that a plain `import sake_jax` does not load the viewer.
        from sake_jax.viewer import render_generations

        rule = "beside must be another Generation"
        right = beside is None or isinstance(beside, Generation)
        require(right, rule, beside, "to write a file: out.to_html().save(path)")
        return render_generations([self, beside] if beside else [self], names, tokenizer)

    def _array(self, name: str, dtype: Any) -> np.ndarray:
        flat = np.asarray([getattr(row, name) for row in self.rows], dtype)
        return flat.reshape(-1, self.samples, flat.shape[-1])


def _said(row: Row) -> str | list[int]:
    """A row's text or, without a tokenizer, its tokens."""
    own = [token for token, mine in zip(row.tokens, row.written, strict=True) if mine]
    return own if row.text is None else row.text


def finished(journal: Journal) -> dict[tuple[int, int], Row]:
    """The rows of an interrupted run."""
    rows = [_row(journal, at, line) for at, line in enumerate(journal.lines(), 1)]
    return {(row.prompt, row.sample): row for row in rows}


def _row(journal: Journal, number: int, line: Line) -> Row:
    try:
        return Row(**line)
    except TypeError as error:
        raise wrong_line(journal.path, number, error) from error


def _grouped(values: list, samples: int) -> list[list]:
    return [values[at : at + samples] for at in range(0, len(values), samples)]
