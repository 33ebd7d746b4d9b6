"""A guidance as (init, update), and a package that imports nothing until it is used."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

import sake_jax as sj
from letters import MASK, make_params, rows, tables

PARAMS = make_params()
TOKENS = jnp.array([[0, 1, MASK, MASK, 2, MASK]])


def arrays(tokens):
    embed, out, bias = tables(PARAMS)
    return {
        "tokens": tokens,
        "open": tokens == MASK,
        "features": rows(PARAMS, tokens, jnp.ones(tokens.shape, bool)),
        "head": lambda rows: rows @ out.T + bias[None, None],
        "tables": sj.Tables(embed, out, bias),
    }


class Growing(sj.Guidance):
    """Sharper at each step."""

    def init(self, ctx):
        return jnp.float32(1)

    def apply(self, logits, psi, state, ctx):
        return logits * state, state + 1, None


def test_a_pair_is_carried_by_a_scan():
    init, update = sj.interop.init_update(sj.chain(sj.sake(1.0), Growing()))

    def step(carry, progress):
        tokens, state = carry
        logits, state = update(state, **arrays(tokens), progress=progress)
        best = jnp.argmax(logits[..., :MASK], axis=-1).astype(tokens.dtype)
        first = jnp.argmax(tokens == MASK, axis=1)[:, None]
        here = (jnp.arange(tokens.shape[1])[None] == first) & (tokens == MASK)
        return (jnp.where(here, best, tokens), state), logits

    first = init(**arrays(TOKENS))
    (tokens, state), logits = jax.lax.scan(step, (TOKENS, first), jnp.linspace(0, 0.9, 3))
    assert not bool(jnp.any(tokens == MASK))
    assert float(state[1]) == 4
    expected, _ = sj.guided_logits(sj.chain(sj.sake(1.0), Growing()), **arrays(TOKENS))
    np.testing.assert_allclose(logits[0], expected, atol=1e-5)


def test_nothing_is_imported_until_it_is_used():
    program = """
import sys
import sake_jax as sj
assert not any(name.startswith("sake_jax.interop") for name in sys.modules), "a plain import"
assert sj.interop.hackable and sj.interop.gemma and sj.interop.bonsai
assert not any(name.split(".")[0] in ("hackable_diffusion", "gemma", "bonsai", "kauldron")
               for name in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
