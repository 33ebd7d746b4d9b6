"""What the viewer needs of a generation, as arrays in the host's memory."""

import dataclasses
from collections.abc import Sequence

import numpy as np

import sake_jax as sj


@dataclasses.dataclass(frozen=True)
class Recording:
    """B rows of N columns over S steps, with everything that record="full" keeps.

    Columns are counted from the first that is written; those of a prompt before it are
    negative.
    """

    name: str
    prompts: Sequence[Sequence[int]]
    """Q prompts of token ids."""
    first: Sequence[int]
    """The column where each prompt begins."""
    infill: bool
    """Whether the prompts' mask tokens are what is written."""
    samples: int
    """Rows for each prompt, which stand together."""
    tokens: np.ndarray
    """(B, N) in the end."""
    written: np.ndarray
    """(B, N) which of them are a sample's text."""
    log_p: np.ndarray
    """(B, N) of each token of a text when it was written; 0 elsewhere."""
    ended: Sequence[str]
    """(B,) why each row ended."""
    info: sj.Info
    """(S, B, ...)"""
    trajectory: np.ndarray
    """(S, B, N) tokens after each step."""
    mask_id: int | None = None

    @property
    def columns(self) -> int:
        """N, the columns that could be written."""
        return self.tokens.shape[-1]

    def blank(self, row: int) -> np.ndarray:
        """(N,) a row before the first step: what was given, elsewhere the mask token, or -1."""
        prompt, first = self._prompt(row)
        given = np.full(self.columns, -1 if self.mask_id is None else self.mask_id)
        inside = np.arange(len(prompt)) + first
        within = (inside >= 0) & (inside < self.columns)
        given[inside[within]] = np.asarray(prompt, int)[within]
        return np.where(self.outside(row), self.trajectory[0, row], given)

    def outside(self, row: int) -> np.ndarray:
        """(N,) padding around a text that is filled in."""
        prompt, first = self._prompt(row)
        at = np.arange(self.columns)
        return ((at < first) | (at >= first + len(prompt))) & self.infill

    def taken(self) -> np.ndarray:
        """(S, B) whether the row's batch took the step: the others' candidates are zeros."""
        assert self.info.candidates is not None
        return np.any(self.info.candidates.log_p != 0, axis=(2, 3))

    def _prompt(self, row: int) -> tuple[Sequence[int], int]:
        at = row // self.samples
        return self.prompts[at], self.first[at]
