"""Contrast guidances against the outputs of the reference code, and by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.core import Context, Tables
from sake_jax.guidance.compose import guide, last_word
from sake_jax.testing import outcome, toy_context, toy_params, toy_view
from sake_jax.view import View

GAMMAS = (0.0, 0.5, 1.0, 2.0, 3.5)
PROCESSES = {"absorbing": sj.absorbing(), "uniform": sj.uniform(eps=0.0)}


def reference_scene(arrays, kind, conditional, unconditional, now, later, mask_id):
    """A context whose denoiser answers with given log-probabilities."""
    tokens = jnp.asarray(arrays[f"{kind}/xt"])
    rows, length = tokens.shape
    vocabulary = conditional.shape[-1]
    everywhere = jnp.ones((rows, length), bool)
    canvas = sj.Canvas(
        tokens=tokens,
        open=tokens == mask_id if kind == "absorbing" else everywhere,
        prompt=~everywhere,
        attend=everywhere,
        positions=jnp.tile(jnp.arange(length), (rows, 1)),
        prompt_id=jnp.arange(rows),
        sample_id=jnp.zeros(rows, jnp.int32),
        cond=jnp.zeros(rows, jnp.int32),
        mask_id=mask_id if kind == "absorbing" else None,
    )
    view = View(
        canvas=canvas,
        window_start=jnp.int32(0),
        time=jnp.asarray(now),
        next_time=jnp.asarray(later),
        progress=jnp.zeros(rows),
        quota=jnp.ones(rows, jnp.int32),
        width=length,
    )
    table = jnp.eye(vocabulary)
    return Context(
        view=view,
        features=conditional,
        tables=Tables(table, table),
        head=lambda features: features,
        read=lambda other, cache: (unconditional, cache),
        log_q=lambda logits: PROCESSES[kind].log_q(logits, view),
    )


def posterior(guidance, ctx):
    composed = sj.chain(guidance)
    guided = guide(composed, composed.init(ctx), ctx)
    return np.asarray(jax.nn.softmax(last_word(composed, guided, ctx.log_q(guided.logits), ctx)))


@pytest.mark.parametrize("kind", PROCESSES)
def test_unguided_posterior(golden, kind):
    arrays = golden("guidance/golden_guidance.npz")
    ctx = _free_scene(arrays, golden, kind)
    unconditional, _ = ctx.read(ctx.view, None)
    ctx = dataclasses.replace(ctx, features=unconditional)
    _compare(posterior(sj.identity(), ctx), arrays[f"{kind}/unguided_q_xs"], ctx)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("kind", PROCESSES)
def test_classifier_free(golden, kind, gamma):
    """D-CFG: gamma = scale + 1; features for the absorbing process, posteriors for the uniform."""
    arrays = golden("guidance/golden_guidance.npz")
    ctx = _free_scene(arrays, golden, kind)
    form = "features" if kind == "absorbing" else "posterior"
    guidance = sj.classifier_free(gamma - 1, sj.with_label(3), form=form)
    _compare(posterior(guidance, ctx), arrays[f"{kind}/cfg_gamma_{gamma}/q_xs"], ctx)


def _free_scene(arrays, golden, kind):
    mask_id = golden("guidance/guidance.json")["mask_index"]
    return reference_scene(
        arrays,
        kind,
        jnp.asarray(arrays[f"{kind}/log_x_theta_cond"]),
        jnp.asarray(arrays[f"{kind}/log_x_theta_uncond"]),
        arrays["move_chance_t"],
        arrays["move_chance_s"],
        mask_id,
    )


def _compare(actual, expected, ctx):
    """At open positions; the reference copies written tokens over the closed ones."""
    expected = expected / expected.sum(axis=-1, keepdims=True)
    here = np.asarray(ctx.open)
    np.testing.assert_allclose(actual[here], expected[here], atol=2e-6)


def toy_classifier(params, one_hot, view):
    """log_softmax(tanh(2 mean_l(E[x_l] (1 + P_l))) W + b + sigma s), the label of the goldens."""
    embedded = jnp.einsum("blv,vd->bld", one_hot, params["E"]) * (1 + params["P"][None])
    pooled = jnp.tanh(2 * jnp.mean(embedded, axis=1))
    scores = pooled @ params["W"] + params["b"][None] + params["sigma"][:, None] * params["s"][None]
    return jax.nn.log_softmax(scores)[:, params["label"]]


@pytest.mark.parametrize("gamma", GAMMAS[1:])
@pytest.mark.parametrize("method", ["exact", "first_order"])
@pytest.mark.parametrize("kind", PROCESSES)
def test_classifier_based(golden, kind, method, gamma):
    arrays = golden("guidance/golden_guidance.npz")
    unconditional = jnp.asarray(arrays[f"{kind}/log_x_theta_uncond"])
    ctx = reference_scene(
        arrays,
        kind,
        unconditional,
        unconditional,
        arrays["cbg/move_chance_t"],
        arrays["cbg/move_chance_s"],
        golden("guidance/guidance.json")["mask_index"],
    )
    params = {name: jnp.asarray(arrays[f"classifier/{name}"]) for name in "EPWbs"}
    params["sigma"] = jnp.asarray(arrays["cbg/sigma"])
    params["label"] = int(arrays["cbg/conditioning_class"])
    guidance = sj.classifier_based(toy_classifier, params, gamma, method=method)
    log_prob = getattr(guidance, method)(ctx, unconditional.shape[-1])
    expected = arrays[f"{kind}/cbg_{method}/classifier_log_prob"]
    np.testing.assert_allclose(log_prob, expected, atol=1e-5)
    _compare(posterior(guidance, ctx), arrays[f"{kind}/cbg_{method}_gamma_{gamma}/probs"], ctx)


def test_classifier_free_is_lladas_formula():
    params, view = toy_params(0), toy_view(0)
    ctx = toy_context(params, view)
    masked = jnp.where(view.prompt | ~view.attend, view.mask_id, view.tokens)
    other = toy_context(params, view.replace(tokens=masked))
    conditional, unconditional = ctx.head(ctx.rows), other.head(other.rows)
    expected = unconditional + (1.5 + 1) * (conditional - unconditional)
    actual, _ = outcome(sj.classifier_free(1.5), params, view)
    here = np.asarray(ctx.open)
    np.testing.assert_allclose(actual[here], expected[here], atol=1e-4)


def test_adaptive_free_masks_the_least_certain_written_tokens():
    params, view = toy_params(1), toy_view(1)
    ctx = toy_context(params, view)
    changed = sj.adaptive_free(1.0, share=0.5).unconditional(ctx)
    chances = np.asarray(jax.nn.softmax(ctx.head(ctx.rows)))
    start = int(view.window_start)
    for row in range(view.tokens.shape[0]):
        written = [
            c
            for c in range(view.tokens.shape[1])
            if c >= start and bool(view.attend[row, c]) and not bool(view.open[row, c])
        ]
        certain = {c: chances[row, c - start, int(view.tokens[row, c])] for c in written}
        doubted = sorted(written, key=certain.get)[: len(written) // 2]
        expected = np.asarray(view.tokens[row]).copy()
        expected[doubted] = int(view.mask_id)
        assert changed.tokens[row].tolist() == expected.tolist()


def test_sake_under_classifier_free_looks_at_the_conditional_branch():
    """chain(cfg, sake) adds both signals, each computed from the conditional features."""
    params, view = toy_params(2), toy_view(2)
    base = toy_context(params, view)
    base = base.head(base.rows)
    both, _ = outcome(sj.chain(sj.classifier_free(1.0), sj.sake(1.0)), params, view)
    free, _ = outcome(sj.classifier_free(1.0), params, view)
    apart, _ = outcome(sj.sake(1.0), params, view)
    np.testing.assert_allclose(both - base, (free - base) + (apart - base), atol=1e-4)


@pytest.mark.parametrize("form", ["features", "posterior"])
def test_bfloat16_is_contrasted_in_float32(form):
    """Two readings of nearly the same numbers: their difference would be lost in bfloat16."""
    lm = sj.load("tests/goldens/llada", dtype="bfloat16")
    guidance = sj.classifier_free(1.5, form=form)
    chosen = sj.masked(lm, length=4, guidance=guidance)
    canvas = sj.canvas([[1, 2, 3]], 4, mask_id=lm.config.mask_id)
    done, _ = jax.eval_shape(sj.run, chosen, lm.params, jax.random.key(0), canvas)
    assert done.log_p.dtype == jnp.float32
