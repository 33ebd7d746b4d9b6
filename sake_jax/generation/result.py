"""What a generation gives back, row by row and as arrays."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sake_jax.core import Info

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
        journal = Journal(Path(folder), self.settings)
        done = journal.rows()
        journal.append([row for row in self.rows if (row.prompt, row.sample) not in done])
        return Path(folder)

    def _array(self, name: str, dtype: Any) -> np.ndarray:
        flat = np.asarray([getattr(row, name) for row in self.rows], dtype)
        return flat.reshape(-1, self.samples, flat.shape[-1])


class Journal:
    """A folder with the settings of a run and the rows it has finished."""

    def __init__(self, folder: Path, settings: dict[str, Any]):
        """Begins a folder, or goes on with one that has the same settings."""
        self.path = folder / "rows.jsonl"
        written = folder / "settings.json"
        text = json.dumps(settings, indent=1)
        if written.exists():
            before = json.loads(written.read_text())
            if (changed := differences(before, json.loads(text))) != []:
                raise ValueError(
                    f"{folder} must be new or hold a run with the same settings, got other "
                    f"{', '.join(changed[:5])}; choose another folder, or repeat that run."
                )
            return
        folder.mkdir(parents=True, exist_ok=True)
        partial = written.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(written)

    def rows(self) -> dict[tuple[int, int], Row]:
        """The finished rows. A line that was cut short is taken away: its row is drawn again."""
        if not self.path.exists():
            return {}
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        found = [self._row(number, line) for number, line in enumerate(whole.splitlines(), 1)]
        return {(row.prompt, row.sample): row for row in found}

    def _row(self, number: int, line: bytes) -> Row:
        try:
            return Row(**json.loads(line))
        except (ValueError, TypeError) as error:
            rule = f"line {number} of {self.path} must be a row of ours"
            raise ValueError(f"{rule}, got {error}; take it out: it is drawn again.") from error

    def append(self, rows: Sequence[Row]) -> None:
        """Adds finished rows in one write."""
        lines = "".join(json.dumps(dataclasses.asdict(row)) + "\n" for row in rows)
        with self.path.open("ab") as file:
            file.write(lines.encode())
            file.flush()


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """Where two trees of JSON differ; neither versions nor the size of a batch matter."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted((before.keys() | now.keys()) - {"versions", "batch"})
        parts = [differences(before.get(k), now.get(k), f"{name}.{k}".strip(".")) for k in keys]
        return [part for found in parts for part in found]
    return [] if before == now else [name]


def _grouped(values: list, samples: int) -> list[list]:
    return [values[at : at + samples] for at in range(0, len(values), samples)]
