"""`ancestral` against MDLM's own sampler, every input of its network; and ReMDM's law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import at_step, distinct, model

import sake_jax as sj
from networks import view_of

MASK, KEY = 259, jax.random.key(2)
CASES = {
    "ddpm": {"reuse": False},
    "ddpm_cache": {},
    "analytic": {"reuse": False, "final": "draw"},
    "ddpm_cache_reuse": {},
}


def recorded(uniform, steps):
    """MDLM's categorical draw divides by -log(u + 1e-10) + 1e-10, in float32."""
    u = np.asarray(uniform, np.float32)
    tiny = np.float32(1e-10)
    noise = -np.log(tiny - np.log(u + tiny))
    missing = steps - len(noise)
    noise = np.concatenate([noise, np.zeros((missing, *noise.shape[1:]), np.float32)])
    return lambda keys, view, vocabulary: at_step(noise, view, steps)


@pytest.mark.parametrize("case", CASES)
def test_mdlm(case, golden):
    arrays, about = golden("mdlm/sampler_mdlm.npz"), golden("mdlm/sampler_mdlm.json")
    case_about = about["cases"][case]
    uniform = arrays["ddpm_cache_reuse/uniform" if case.endswith("reuse") else "uniform"]
    lm, moves = model("mdlm"), case_about["num_steps"]
    sampler = sj.ancestral(
        lm,
        length=case_about["length"],
        steps=moves,
        noise=recorded(uniform, moves + 1),
        **CASES[case],
    )
    canvas = sj.canvas([[]] * case_about["batch"], case_about["length"], mask_id=MASK)
    key = jax.random.key(0)
    done, _, states = sj.run(sampler, lm.params, key, canvas, trajectory=True)
    np.testing.assert_array_equal(done.tokens, arrays[f"{case}/output"])
    inputs = np.concatenate([np.asarray(canvas.tokens)[None], states])[:-1]
    if "cache" in case:  # only changed inputs are read again
        inputs = distinct(inputs)
    theirs = arrays[f"{case}/forward_inputs"]
    np.testing.assert_array_equal(inputs[: len(theirs)], theirs)


def test_one_step_has_the_recorded_distribution(golden):
    g, lm = golden("mdlm/golden_step.npz"), model("mdlm")
    view = view_of(lm, g["xt"], start=0, width=16, time=jnp.asarray(g["t"]))
    view = view.replace(next_time=jnp.asarray(g["t"] - g["dt"]), mask_id=jnp.int32(MASK))
    features, _ = lm.denoiser.read(lm.params, view, None)
    log_q = sj.absorbing().log_q(lm.denoiser.head(lm.params, features), view)
    masked = g["xt"] == MASK
    for update in ("ddpm", "ddpm_cache", "analytic"):
        theirs = g[f"{update}/probs_unnormalised"]
        theirs = theirs / theirs.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(jax.nn.softmax(log_q)[masked], theirs[masked], atol=2e-6)
    last = sj.absorbing().log_q(
        lm.denoiser.head(lm.params, features), view.replace(next_time=jnp.zeros(2))
    )
    theirs = g["denoiser/probs_unnormalised"]
    theirs = theirs / theirs.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(jax.nn.softmax(last)[masked], theirs[masked], atol=2e-6)


def test_reuse_changes_no_token_and_needs_a_network_without_time():
    lm, key = model("mdlm"), jax.random.key(3)
    canvas = sj.canvas([[1, 2]], 6, mask_id=MASK, samples=3)
    runs = [
        sj.run(sj.ancestral(lm, length=6, steps=20, reuse=reuse), lm.params, key, canvas)[0]
        for reuse in (False, True)
    ]
    np.testing.assert_array_equal(runs[0].tokens, runs[1].tokens)
    assert (np.asarray(runs[0].tokens) != MASK).all()
    with pytest.raises(ValueError, match="does not look at the time"):
        sj.ancestral(model("udlm"), length=6, steps=4, reuse=True)


def test_udlm_writes_tokens_under_a_label():
    lm = model("udlm")
    sampler = sj.ancestral(
        lm, length=6, steps=8, guidance=sj.classifier_free(1.0, sj.with_label(10))
    )
    canvas = sj.canvas([[]], 6, mask_id=0, samples=4).replace(
        mask_id=None, cond=jnp.array([1, 2, 3, 4])
    )
    done, info = sj.run(sampler, lm.params, jax.random.key(0), canvas)
    assert bool(jnp.all(info.finite))
    assert len(np.unique(np.asarray(done.tokens))) > 4


def test_final_none_may_leave_noise():
    lm = model("mdlm")
    canvas = sj.canvas([[]], 8, mask_id=MASK, samples=8)
    sampler = sj.ancestral(lm, length=8, steps=2, final="none", least=0.5)
    done, _ = sj.run(sampler, lm.params, jax.random.key(0), canvas)
    share = np.mean(np.asarray(done.tokens) == MASK)
    assert 0.2 < share < 0.8


def test_remasking_keeps_the_marginals_and_share_0_is_absorbing():
    """A token is masked at time s with chance s, whatever share and cap are."""
    lm = model("mdlm")
    random = np.random.default_rng(0)
    x0 = random.integers(0, 250, (400, 8))
    t, s = 0.6, 0.3
    xt = np.where(random.random(x0.shape) < t, MASK, x0)
    view = view_of(lm, xt, start=0, width=8, time=jnp.full(400, t)).replace(
        next_time=jnp.full(400, s), mask_id=jnp.int32(MASK)
    )
    logits = 30.0 * jax.nn.one_hot(x0, 260)
    for share, cap in ((0.0, 1.0), (0.5, 1.0), (1.0, 0.1), (1.0, 1.0)):
        q = jax.nn.softmax(sj.remasking(share, cap).log_q(logits, view))
        np.testing.assert_allclose(jnp.mean(q[..., MASK]), s, atol=0.02)
        if share == 0:
            plain = jax.nn.softmax(sj.absorbing().log_q(logits, view))
            masked = xt == MASK
            np.testing.assert_allclose(q[masked], plain[masked], atol=1e-6)
            assert np.all(q[~masked][:, MASK] == 0)


def test_remasking_draws_again_and_ends_without_noise():
    lm = model("mdlm")
    canvas = sj.canvas([[]], 8, mask_id=MASK, samples=8)
    sampler = sj.ancestral(lm, length=8, steps=24, process=sj.remasking(0.5))
    *_, states = sj.run(sampler, lm.params, jax.random.key(0), canvas, trajectory=True)
    states = np.asarray(states)
    again = (states[:-1] != MASK) & (states[1:] == MASK)
    assert again.any()
    assert (states[-1] != MASK).all()


def test_remasking_nothing_keeps_the_books_of_absorbing():
    lm = model("mdlm")
    canvas = sj.canvas([[]], 8, mask_id=MASK, samples=2)
    run = lambda process: sj.run(  # noqa: E731
        sj.ancestral(lm, length=8, steps=12, process=process), lm.params, KEY, canvas
    )
    (one, info), (other, same) = run(sj.absorbing()), run(sj.remasking(0.0))
    np.testing.assert_array_equal(one.tokens, other.tokens)
    np.testing.assert_allclose(one.log_p, other.log_p, atol=1e-5)
    np.testing.assert_array_equal(info.revealed, same.revealed)
    assert np.asarray(info.revealed).sum() == 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"final": "later"}, "final must be one of"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"least": 0.0}, "least must be above 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        sj.ancestral(model("mdlm"), **{"length": 8, "steps": 4} | options)
