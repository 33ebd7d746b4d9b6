"""Guidance from bare arrays is the guidance of the sampler's own step."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import registry
import sake_jax as sj
from sake_jax.guidance.compose import guide, last_word
from sake_jax.testing import ToyDenoiser, toy_context, toy_params, toy_view
from tiers import few_quick

PARAMS = toy_params(0)
FIRST = ("chain", "sake, both", "classifier_free", "sake, budget", "temperature, scheduled")
NAMES = [*FIRST, *(name for name in registry.ENTRIES if name not in FIRST)]


def whole_canvas():
    """A scene whose window is the whole canvas, as in a loop that knows no windows."""
    view = toy_view(3)
    return view.replace(window_start=jnp.int32(0), width=view.tokens.shape[1], generation_start=0)


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
        "cond": view.cond,
        "read": lambda tokens, cond: denoiser.read(
            PARAMS, view.replace(tokens=tokens, cond=cond), None
        )[0],
    }
    return sj.guided_logits(guidance, **options | changes)


@pytest.mark.parametrize("name", few_quick(NAMES, len(FIRST)))
def test_bare_arrays_give_what_a_step_gives(name):
    view, guidance = whole_canvas(), registry.ENTRIES[name].guidance
    ctx = toy_context(PARAMS, view)

    @jax.jit
    def step():
        guided = guide(guidance, guidance.init(ctx), ctx)
        return last_word(guidance, guided, guided.logits, ctx)

    expected = step()
    logits, _ = jax.jit(lambda: bare(guidance, view))()
    np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize("name", few_quick(["odd", *(name for name in NAMES if name != "odd")], 3))
def test_slopes_are_finite(name):
    """Of the guided logits, in features: also where a sample is not moved, or an entry is -inf."""
    view, guidance = whole_canvas(), registry.ENTRIES[name].guidance
    rows = ToyDenoiser().read(PARAMS, view, None)[0]

    @jax.jit
    @jax.grad
    def slope(rows):
        logits = bare(guidance, view, features=rows)[0]
        return jnp.sum(jnp.square(jax.nn.softmax(logits)))

    assert np.isfinite(slope(rows)).all()
    assert np.abs(slope(rows)).max() > 0


class Impatient(sj.Guidance):
    """Sharper at each step."""

    def init(self, ctx):
        return jnp.float32(1)

    def apply(self, logits, psi, state, ctx):
        return logits * state, state + 1, None


def test_the_state_is_handed_on():
    view = whole_canvas()
    first, state = bare(Impatient(), view)
    second, state = bare(Impatient(), view, state=state)
    is_open = np.asarray(view.open & view.attend)
    np.testing.assert_allclose(second[is_open], 2 * first[is_open], rtol=1e-5)
    assert float(state) == 3


def test_it_can_be_scanned_mapped_and_differentiated():
    view = whole_canvas()

    def total(strength):
        guidance = sj.chain(sj.sake(strength), Impatient())

        def body(state, progress):
            logits, state = bare(guidance, view, state=state, progress=progress)
            return state, jnp.sum(jax.nn.softmax(logits)[..., 0])

        state, sums = jax.lax.scan(body, begun(guidance, view), jnp.linspace(0, 0.9, 3))
        return jnp.sum(sums), state[1]

    (_, steps), slope = jax.value_and_grad(total, has_aux=True)(1.0)
    assert np.isfinite(slope)
    assert float(slope) != 0
    assert float(steps) == 4
    assert jax.vmap(total)(jnp.array([0.5, 1.0]))[0].shape == (2,)


def begun(guidance, view):
    denoiser = ToyDenoiser()
    return sj.first_state(
        guidance,
        tokens=view.tokens,
        features=jnp.zeros((*view.tokens.shape, 6)),
        head=lambda rows: denoiser.head(PARAMS, rows),
        tables=denoiser.tables(PARAMS),
        open=view.open,
    )


def test_a_label_can_be_taken_away():
    view = whole_canvas()
    guided, _ = bare(sj.classifier_free(1.0, unconditional=sj.with_label(3)), view)
    same, _ = bare(sj.classifier_free(1.0, unconditional=sj.with_label(int(view.cond[0]))), view)
    assert not np.allclose(guided[0], same[0], atol=1e-3)
    plain, _ = bare(sj.identity(), view)
    np.testing.assert_allclose(same[0], plain[0], atol=1e-4)


def test_a_guidance_that_asks_again_needs_a_way_to():
    with pytest.raises(ValueError, match="asks the model again, got 'no read'; pass read="):
        bare(sj.classifier_free(1.0), whole_canvas(), read=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"open": jnp.ones((2, 2), bool)}, r"open must say yes or no of each column.*got \(2, 2\)"),
        ({"attend": jnp.ones(3, bool)}, r"attend must say yes or no of each column.*got \(3,\)"),
        ({"progress": 2.0}, "progress must be at most 1, got 2.0"),
        ({"samples": 3}, r"samples must divide the rows, got \(4, 3\)"),
        ({"features": jnp.ones((1, 2, 6))}, "features must have a row for each column"),
    ],
)
def test_arrays_that_do_not_fit(changes, message, monkeypatch):
    """What users are told, who do not have the tests' own checks of shapes."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        bare(sj.sake(1.0), whole_canvas(), **changes)
