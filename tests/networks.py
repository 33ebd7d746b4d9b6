"""Helpers to compare networks with recorded outputs."""

import jax.numpy as jnp
import numpy as np

from sake_jax.conversion.parity import TOLERANCE
from sake_jax.view import Canvas, Reread, View


def close(ours, theirs, where=None):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    where = np.ones(ours.shape[:2], bool) if where is None else np.asarray(where, bool)
    np.testing.assert_allclose(ours[where], theirs[where], rtol=0, atol=TOLERANCE)


def view_of(lm, tokens, *, start, width, attend=None, time=None, span=(), **changes) -> View:
    """A view of token ids as a sampler would make it; a cached read recomputes the `span`, if
    there is one, and None is all of it."""
    tokens = jnp.asarray(tokens, jnp.int32)
    batch = tokens.shape[0]
    attend = jnp.ones(tokens.shape, bool) if attend is None else jnp.asarray(attend, bool)
    rows = jnp.zeros(batch, jnp.float32)
    canvas = Canvas(
        tokens=tokens,
        open=jnp.zeros(tokens.shape, bool),
        prompt=jnp.zeros(tokens.shape, bool),
        attend=attend,
        positions=lm.positions(attend),
        prompt_id=jnp.arange(batch),
        sample_id=jnp.zeros(batch, jnp.int32),
    )
    return View(
        canvas=canvas,
        window_start=jnp.int32(start),
        reread=None if span == () else Reread(jnp.int32(0), (span,)),
        time=rows if time is None else time,
        next_time=rows,
        progress=rows,
        quota=jnp.zeros(batch, jnp.int32),
        width=width,
        **changes,
    )
