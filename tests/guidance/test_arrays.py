"""Guidance from bare arrays is the guidance of the sampler's own step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import registry
import sake_jax as sj
from sake_jax.guidance.compose import guide
from sake_jax.testing import ToyDenoiser, toy_context, toy_params, toy_view

PARAMS = toy_params(0)
FEW = ("chain", "sake", "sake, both", "classifier_free", "sake, budget", "temperature, scheduled")


def whole_canvas():
    """A scene whose window is the whole canvas, as in a loop that knows no windows."""
    view = toy_view(3)
    return view.replace(window_start=jnp.int32(0), width=view.tokens.shape[1])


def bare(guidance, view, **changes):
    denoiser = ToyDenoiser()
    options = {
        "tokens": view.tokens,
        "features": denoiser.read(PARAMS, view, None)[0],
        "head": lambda rows: denoiser.head(PARAMS, rows),
        "tables": denoiser.tables(PARAMS),
        "open": view.open,
        "attend": view.attend,
        "positions": view.positions,
        "prompt": view.prompt,
        "progress": view.progress,
        "samples": view.samples,
        "mask_id": view.mask_id,
        "read": lambda tokens: denoiser.read(PARAMS, view.replace(tokens=tokens), None)[0],
    }
    return sj.guided_logits(guidance, **options | changes)


@pytest.mark.parametrize("name", FEW)
def test_bare_arrays_give_what_a_step_gives(name):
    view, guidance = whole_canvas(), registry.ENTRIES[name].guidance
    ctx = toy_context(PARAMS, view)
    expected = jax.jit(lambda: guide(guidance, guidance.init(ctx), ctx).logits)()
    logits, _ = jax.jit(lambda: bare(guidance, view))()
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_the_state_is_handed_on():
    class Impatient(sj.Guidance):
        def init(self, ctx):
            return jnp.float32(1)

        def apply(self, logits, psi, state, ctx):
            return logits * state, state + 1, None

    view = whole_canvas()
    first, state = bare(Impatient(), view)
    second, state = bare(Impatient(), view, state=state)
    is_open = np.asarray(view.open & view.attend)
    np.testing.assert_allclose(second[is_open], 2 * first[is_open], rtol=1e-5)
    assert float(state) == 3


def test_it_can_be_scanned_mapped_and_differentiated():
    view = whole_canvas()

    def total(strength):
        def body(state, progress):
            logits, state = bare(sj.sake(strength), view, state=state, progress=progress)
            return state, jnp.sum(jax.nn.softmax(logits)[..., 0])

        _, state = bare(sj.sake(strength), view)
        return jnp.sum(jax.lax.scan(body, state, jnp.linspace(0, 0.9, 3))[1])

    slope = jax.grad(total)(1.0)
    assert np.isfinite(slope)
    assert float(slope) != 0
    assert jax.vmap(total)(jnp.array([0.5, 1.0])).shape == (2,)


def test_a_guidance_that_asks_again_needs_a_way_to():
    with pytest.raises(ValueError, match="asks the model again, got 'no read'; pass read="):
        bare(sj.classifier_free(1.0), whole_canvas(), read=None)
