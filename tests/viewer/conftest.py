"""Recordings made of numbers, without a model."""

import numpy as np
import pytest

from sake_jax.info import Candidates, Info, Signal
from sake_jax.viewer import Recording

VOCABULARY, MASK = 64, 63
PIECES = ["<script>alert('token')</script>", "</script>", "\n", " the", " dog", "s", "&amp;", "<b>"]


class Words:
    """A tokenizer for ids below 64: some pieces want escaping, id 0 is special."""

    all_special_ids = (0,)

    def __call__(self, text):
        return {"input_ids": [3, 4, 5]}

    def decode(self, ids):
        return "".join(PIECES[at] if at < len(PIECES) else f" word{at}" for at in ids)


def writings(rng, columns, steps, window, rewrites):
    """(columns, k) steps at which each column of a row is written."""
    if rewrites:
        found = [rng.choice(steps, 1 + rewrites, replace=False) for _ in range(columns)]
        return np.sort(found, axis=1)
    per_block = steps * window // columns
    order = [rng.permutation(window) * per_block // window for _ in range(columns // window)]
    return np.concatenate([at * per_block + part for at, part in enumerate(order)])[:, None]


def trajectory(rng, rows, columns, steps, window, rewrites, size):
    tokens = np.full((steps, rows, columns), MASK, np.int32)
    for row in range(rows):
        for column, when in enumerate(writings(rng, columns, steps, window, rewrites)):
            for at in when:  # now and then a token is taken back
                again = at != when[-1] and rng.random() < 0.3
                tokens[at:, row, column] = MASK if again else rng.integers(size)
    return tokens


def candidates(rng, shape, size, drawn):
    """Five different candidates, the last of them what was drawn there."""
    others = (drawn + rng.integers(1, size - 4, size=shape))[..., None] + np.arange(4)
    ids = np.concatenate([others % size, drawn[..., None]], axis=-1).astype(np.int32)
    log_p = np.sort(rng.uniform(-6, -0.1, (*shape, 5)).astype(np.float32))[..., ::-1]
    return Candidates(ids, log_p, rng.uniform(0, 5, shape).astype(np.float32))


def make(
    columns=12, steps=12, samples=3, window=6, rewrites=0, prompt=3, size=VOCABULARY - 1, seed=0
):
    """A recording of one prompt."""
    rng = np.random.default_rng(seed)
    window = columns if rewrites else window
    tokens = trajectory(rng, samples, columns, steps, window, rewrites, size)
    starts = np.arange(steps) * columns // steps // window * window
    shape = (steps, samples, window)
    inside = starts[:, None] + np.arange(window)
    drawn = np.take_along_axis(tokens, np.repeat(inside[:, None], samples, axis=1), axis=2)
    curve = lambda: rng.uniform(0.1, 5, shape[:2]).astype(np.float32)  # noqa: E731
    before = np.concatenate([np.full((1, samples, columns), MASK), tokens[:-1]])
    weights = rng.random((*shape, columns + prompt + 1), np.float32)
    others = ~np.eye(samples, dtype=bool)[None, :, None]  # a sample does not repel itself
    sample_weights = np.where(others, rng.uniform(0.1, 1, (*shape, samples)), 0)
    info = Info(
        entropy=curve(),
        confidence=curve(),
        revealed=np.sum(tokens != before, axis=-1),
        finite=np.ones(shape[:2], bool),
        base_entropy=curve(),
        kl=curve(),
        signals=(Signal(curve(), curve(), curve(), curve(), weights, sample_weights),),
        window_start=np.repeat(starts[:, None], samples, axis=1),
        base_candidates=candidates(rng, shape, size, drawn),
        candidates=candidates(rng, shape, size, drawn),
    )
    return Recording(
        name="guided",
        prompts=[[3, 4, 5][:prompt]],
        first=[-prompt],
        infill=False,
        samples=samples,
        tokens=tokens[-1],
        written=np.ones(tokens.shape[1:], bool),
        log_p=rng.uniform(-3, -0.01, tokens.shape[1:]).astype(np.float32),
        ended=["length"] * samples,
        info=info,
        trajectory=tokens,
        mask_id=MASK,
    )


@pytest.fixture(scope="session")
def recording():
    """`recording(rewrites=2)`: a recording of random numbers."""
    return make


@pytest.fixture(scope="session")
def words():
    return Words()
