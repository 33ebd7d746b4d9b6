"""Recordings as a small tree of lists and numbers, ready for JSON.

A token's candidates and repellers are kept for its last writing only; of earlier ones, where
a sampler writes again, there are step, column, token and probability.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sake_jax.checks import require
from sake_jax.viewer.events import (
    Events,
    candidates_before_and_after,
    guided_entropy,
    repellers,
    repelling_samples,
    row_events,
)
from sake_jax.viewer.pieces import Pieces
from sake_jax.viewer.recording import Recording

CURVES = ("entropy", "base_entropy", "covariance", "kl")
"""Beside "revealed", which counts."""


def payload(
    runs: Sequence[Recording], tokenizer: Any = None, opens: int = 0, note: str = ""
) -> dict[str, Any]:
    """All that the page shows.

    Args:
      runs: one, or two of the same prompts, which are set side by side.
      tokenizer: of the model; tokens are shown as ids without one.
      opens: the sample that the page opens with.
      note: what stands below the title.
    """
    first, *others = runs
    for other in others:
        rule, remedy = "generations side by side must have the same prompts", "generate them alike"
        require(other.prompts == first.prompts, rule, len(other.prompts), remedy)
        rule = "generations side by side must have as many samples"
        require(other.samples == first.samples, rule, (first.samples, other.samples), remedy)
    pieces = Pieces(tokenizer)
    tree = {
        "prompts": [_prompt(ids, at, pieces) for ids, at in _prompts(first)],
        "samples": first.samples,
        "opens": opens,
        "note": note,
        "runs": [_run(run, pieces) for run in runs],
    }
    names = {"pieces": pieces.texts, "ids": pieces.ids, "special": pieces.special}
    return tree | names | {"words": tokenizer is not None}


def _prompts(run: Recording) -> list[tuple[Sequence[int], int]]:
    return list(zip(run.prompts, run.first, strict=True))


def _prompt(ids: Sequence[int], first: int, pieces: Pieces) -> dict[str, Any]:
    return {"tokens": pieces.of(ids), "first": first}


def _run(run: Recording, pieces: Pieces) -> dict[str, Any]:
    taken = run.taken()
    steps = np.flatnonzero(taken.any(axis=1))
    mask = None if run.mask_id is None else pieces.number(run.mask_id)
    return {
        "name": run.name,
        "steps": len(steps),
        "columns": run.columns,
        "mask": mask,
        "rows": [_row(run, row, steps, taken[steps, row], pieces) for row in range(len(run.ended))],
    }


def _row(
    run: Recording, row: int, steps: np.ndarray, taken: np.ndarray, pieces: Pieces
) -> dict[str, Any]:
    changes = row_events(run, row, steps)
    real = np.flatnonzero(~run.outside(row))
    return {
        "ended": run.ended[row],
        "outside": [int(real[0]), int(run.columns - 1 - real[-1])] if len(real) else [0, 0],
        "text": "".join("1" if kept else "0" for kept in run.written[row]),
        "step": changes.step.tolist(),
        "column": changes.column.tolist(),
        "token": pieces.of(changes.token.tolist()),
        "chance": [hundredths(value) for value in changes.log_p.tolist()],
        "details": _details(run, row, steps, changes, pieces),
        "curves": _curves(run, row, steps, taken),
    }


def _details(
    run: Recording, row: int, steps: np.ndarray, changes: Events, pieces: Pieces
) -> dict[str, list]:
    """Of each last writing: [before, after, repellers, entropy, samples that repel it].

    All but the entropy are flat lists of pairs.
    """
    details = {}
    for at in np.flatnonzero(changes.last & (changes.token != run.mask_id)):
        where = run, row, int(steps[changes.step[at]]), int(changes.column[at])
        candidates = [_candidates(part, pieces) for part in candidates_before_and_after(*where)]
        rows, samples = _weighed(repellers(*where)), _weighed(repelling_samples(*where))
        details[str(at)] = [*candidates, rows, _short(guided_entropy(*where)), samples]
    return details


def _weighed(pairs: list[tuple[int, float]]) -> list[float]:
    return [value for place, weight in pairs for value in (place, _short(weight))]


def _candidates(pairs: list[tuple[int, float]], pieces: Pieces) -> list[int | None]:
    numbers = [(pieces.number(token), hundredths(log_p)) for token, log_p in pairs]
    return [value for pair in numbers for value in pair]


def _curves(run: Recording, row: int, steps: np.ndarray, taken: np.ndarray) -> dict[str, list]:
    """By step, None where nothing was open."""
    info, signals = run.info, run.info.signals
    slope = np.sum([signal.covariance for signal in signals], axis=0) if signals else None
    values = dict(zip(CURVES, (info.entropy, info.base_entropy, slope, info.kl), strict=True))
    at = {name: value[steps, row] for name, value in values.items() if value is not None}
    # A step that found nothing open in a row leaves zeros there, which are no measurements.
    idle = ~taken | ((at["entropy"] == 0) & (at["base_entropy"] == 0))
    curves = {name: _shortened(value, idle) for name, value in at.items()}
    return curves | {"revealed": [int(count) for count in info.revealed[steps, row]]}


def _shortened(values: np.ndarray, idle: np.ndarray) -> list[float | None]:
    return [None if at else _short(value) for value, at in zip(values.tolist(), idle, strict=True)]


def _short(value: float) -> float:
    """Three digits are more than a screen shows."""
    return float(f"{value:.3g}")


def hundredths(log_p: float) -> int | None:
    """Hundredths of a nat below certainty, of a log-probability; None where it is not known."""
    return None if np.isnan(log_p) else max(0, round(-100 * float(log_p)))
