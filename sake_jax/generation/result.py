"""What a generation gives back, row by row and as arrays."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from sake_jax.core import Info
from sake_jax.journal import Journal, Line, wrong_line

ENDINGS = ("length", "token", "string")
"""Why a row ended: all columns are written, an end token, a stop string."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One sample of one prompt."""

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
    """Q prompts, M samples of each, N columns."""

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

    def save(self, folder: str | Path) -> Path:
        """Writes settings.json and rows.jsonl, as `generate(..., save=folder)` does."""
        journal = Journal(folder, self.settings)
        done = finished(journal)
        new = (row for row in self.rows if (row.prompt, row.sample) not in done)
        journal.append(dataclasses.asdict(row) for row in new)
        return Path(folder)

    def _array(self, name: str, dtype: Any) -> np.ndarray:
        flat = np.asarray([getattr(row, name) for row in self.rows], dtype)
        return flat.reshape(-1, self.samples, flat.shape[-1])


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
