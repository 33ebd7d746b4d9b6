"""The changes of a row, and what was true when each token was last written."""

from typing import Any, NamedTuple

import numpy as np

import sake_jax as sj
from sake_jax.viewer.recording import Recording

REPELLERS = 6
"""How many of the rows that repel a token are kept, and how many of the samples."""
NEGLIGIBLE = 1e-2
"""Repellers of less than this part of the strongest are left out."""
UNLIKELY = -50.0
"""Log-probabilities below this are those of forbidden tokens."""


class Events(NamedTuple):
    """E changes of a row in the order of time: a row is its blank, changed by them."""

    step: np.ndarray
    """(E,) counted from 0, of the steps taken."""
    column: np.ndarray
    token: np.ndarray
    log_p: np.ndarray
    """(E,) under the guided distribution; NaN where it is not known."""
    last: np.ndarray
    """(E,) whether the column is not changed again."""


def row_events(run: Recording, row: int, steps: np.ndarray) -> Events:
    """The changes of a row, in the order of time; `steps` are the plan's steps that were taken."""
    states = np.concatenate([run.blank(row)[None], run.trajectory[steps, row]])
    step, column = np.nonzero(states[1:] != states[:-1])
    token = states[step + 1, column]
    # `unique` finds first occurrences: the last change of a column is the first from the end.
    last = np.zeros(len(step), bool)
    _, newest = np.unique(column[::-1], return_index=True)
    last[len(step) - 1 - newest] = True
    # A row keeps the log-probability of its final text; of what was overwritten, or stands outside
    # the text, only the candidates know it.
    log_p = _candidate_log_p(run, row, steps[step], column, token)
    known = last & run.written[row, column] & (run.log_p[row, column] != 0)
    return Events(step, column, token, np.where(known, run.log_p[row, column], log_p), last)


def replay_events(blank: np.ndarray, changes: Events, steps: int) -> np.ndarray:
    """(S, N) the trajectory again, from a blank row and its changes: what the page does."""
    states = np.repeat(blank[None], steps, axis=0)
    for step, column, token in zip(changes.step, changes.column, changes.token, strict=True):
        states[step:, column] = token
    return states


def candidates_before_and_after(
    run: Recording, row: int, step: int, column: int
) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """(token, log-probability) of the likeliest candidates before and after guidance."""
    base, guided = run.info.base_candidates, run.info.candidates
    assert base is not None
    assert guided is not None
    return _likeliest(run, base, row, step, column), _likeliest(run, guided, row, step, column)


def guided_entropy(run: Recording, row: int, step: int, column: int) -> float:
    """Nats of the guided distribution that a token was drawn from."""
    assert run.info.candidates is not None
    at = column - int(run.info.window_start[step, row])
    return float(run.info.candidates.entropy[step, row, at])


def repellers(run: Recording, row: int, step: int, column: int) -> list[tuple[int, float]]:
    """(column, weight) of the rows that repel this one most, summed over the guidances."""
    kept = [signal.weights for signal in run.info.signals if signal.weights is not None]
    if not kept:
        return []
    shift = kept[0].shape[-1] - run.columns  # canvases end with the last column that is written
    return [(at - shift, weight) for at, weight in _strongest(run, kept, row, step, column)]


def repelling_samples(run: Recording, row: int, step: int, column: int) -> list[tuple[int, float]]:
    """(sample, weight) of the prompt's samples that repel this one most in this column."""
    every = [signal.sample_weights for signal in run.info.signals]
    kept = [weights for weights in every if weights is not None]
    return _strongest(run, kept, row, step, column) if kept else []


def _strongest(
    run: Recording, kept: list[np.ndarray], row: int, step: int, column: int
) -> list[tuple[int, float]]:
    """(place, weight) of the largest weights, the largest first."""
    at = column - int(run.info.window_start[step, row])
    weights = np.sum([part[step, row, at] for part in kept], axis=0)
    largest = np.argsort(-weights, kind="stable")[:REPELLERS]
    least = NEGLIGIBLE * weights[largest[0]]
    return [(int(place), float(weights[place])) for place in largest if weights[place] > least]


def _likeliest(run: Recording, kept: sj.Candidates, row: int, step: int, column: int) -> list:
    at = column - int(run.info.window_start[step, row])
    pairs = zip(kept.ids[step, row, at], kept.log_p[step, row, at], strict=True)
    return [(int(token), float(log_p)) for token, log_p in pairs if log_p > UNLIKELY]


def _candidate_log_p(run: Recording, row: int, step: Any, column: Any, token: Any) -> np.ndarray:
    """(E,) log-probabilities of drawn tokens that are among the candidates; NaN for others."""
    kept = run.info.candidates
    assert kept is not None
    at = column - run.info.window_start[step, row]
    same = kept.ids[step, row, at] == token[:, None]
    log_p = np.where(same, kept.log_p[step, row, at], 0).sum(axis=-1)
    return np.where(same.any(axis=-1), log_p, np.nan)
