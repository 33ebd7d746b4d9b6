"""Bad input: an error at construction that says rule, got and remedy, or a documented outcome."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import registry
import sake_jax as sj
from sake_jax.guidance.compose import guide
from sake_jax.testing import outcome, toy_context, toy_params, toy_view


class PlainDenoiser:
    affine = True

    def read(self, params, view, cache): ...
    def head(self, params, rows): ...
    def tables(self, params): ...


class LeafyDenoiser(sj.testing.ToyDenoiser):
    affine: bool = True


NAN = float("nan")
MISTAKES = {
    "bandwidth must be above 0": lambda: sj.sake(1.0, bandwidth=-1.0),
    "bandwidth must be one of 'median', 'mean'": lambda: sj.sake(1.0, bandwidth="mode"),
    "attention_bandwidth must be above 0": lambda: sj.sake(1.0, attention_bandwidth=0.0),
    "source must be one of": lambda: sj.sake(1.0, source="thoughts"),
    "table must be one of": lambda: sj.sake(1.0, table="kitchen"),
    "gradient must be one of": lambda: sj.sake(1.0, gradient="numeric"),
    "normalize must be one of": lambda: sj.sake(1.0, normalize="max"),
    "scope must be one of": lambda: sj.sake(1.0, scope="world"),
    "strength must be finite": lambda: sj.sake(NAN),
    "strength must be a number or": lambda: sj.sake("strong"),
    "kl_budget must be above 0": lambda: sj.sake(1.0, kl_budget=0.0),
    "self_term must be 1 with gradient=": lambda: sj.sake(1.0, gradient="exact", self_term=0.0),
    "must come with the collision objective": lambda: sj.diversity(
        sj.von_neumann, gradient="closed_form"
    ),
    "objective must be a function": lambda: sj.diversity("entropy"),
    "order must be above 0": lambda: sj.renyi(0),
    "ridge must be above 0": lambda: sj.log_determinant(-1.0),
    "features must be one of 'probabilities'": lambda: sj.odd(features="hidden"),
    "pool must be one of 'max'": lambda: sj.odd(pool="min"),
    "the ids of protect must be at least 0": lambda: sj.odd(protect=[-1]),
    "jitter must be at least 0": lambda: sj.odd(jitter=-1.0),
    "bandwidth must be above 0, got 0.0": lambda: sj.distinct(bandwidth=0.0),
    "quality must be at least 0": lambda: sj.dpp(quality=-1.0),
    "top must be a whole number": lambda: sj.dpp(top=0.5),
    "objective must be a function, got 'far'": lambda: sj.guidance.pooled("far"),
    "capped must get a Guidance": lambda: sj.capped(0.5, 0.1),
    "nats must be above 0": lambda: sj.capped(sj.odd(), 0.0),
    "by must be a function (logits, drawn)": lambda: sj.reveal.tempered(1.0, by="margin"),
    "by must be a function (logits, drawn) -> scores, got 2": lambda: sj.reveal.apart(1.0, by=2),
    "a reveal rule must be a function (logits, drawn, view, key) -> kept, got 'confid": (
        lambda: sj.reveal.stratified("confidence")
    ),
    "chain must have at least one guidance": lambda: sj.chain(),
    "every part of a chain must be a Guidance": lambda: sj.chain(sj.top_p(0.9), 0.7),
    "temperature must be at least 0": lambda: sj.temperature(-0.1),
    "temperature must be at least 0, got ": lambda: sj.temperature(sj.linear(1.0, -1.0)),
    "top_p's mass must be above 0": lambda: sj.top_p(0.0),
    "top_p's mass must be at most 1": lambda: sj.top_p(1.5),
    "top_k's count must be at least 1": lambda: sj.top_k(0),
    "min_p's ratio must be at most 1": lambda: sj.min_p(2.0),
    "forbid must name at least one": lambda: sj.forbid([]),
    "the ids of forbid must be at least 0": lambda: sj.forbid([-1]),
    "transform must get a function": lambda: sj.transform(3),
    "start must be at most 1": lambda: sj.when(sj.temperature(1.0), start=2.0),
    "form must be one of": lambda: sj.classifier_free(1.0, form="logits"),
    "share must be at most 1": lambda: sj.adaptive_free(1.0, share=1.5),
    "method must be one of": lambda: sj.classifier_based(
        registry.classifier, (), 1.0, method="guess"
    ),
    "classifier must be a function": lambda: sj.classifier_based(None, (), 1.0),
    "distance must be above 0": lambda: sj.vanishing(-3.0),
    "piecewise must have a value for progress 0": lambda: sj.piecewise({0.5: 1.0}),
    "shape must be a function": lambda: sj.schedule(3.0),
    "eps must be at most 0.5": lambda: sj.uniform(0.9),
    "strength must be a number or a schedule": lambda: sj.sake(lambda progress: 1 - progress),
    "guidance must be a Guidance, got 0.5": lambda: sj.first_state(0.5),
    "guidance must be a Guidance, got 'sake'": lambda: sj.guided_logits(
        "sake", tokens=None, features=None, head=None, tables=None, open=None
    ),
    "when must get a Guidance": lambda: sj.when(0.5),
    "attention_bandwidth must be left out": lambda: sj.sake(
        1.0, scope="batch", attention_bandwidth=5.0
    ),
    "length must be a multiple of block": lambda: sj.blocks(10, 10, 3),
    "steps must be at most length": lambda: sj.sampler(sj.testing.ToyDenoiser(), sj.blocks(8, 16)),
    "draw must only shape logits": lambda: sj.sampler(
        sj.testing.ToyDenoiser(), sj.blocks(8, 8), draw=sj.when(sj.classifier_free(1.0))
    ),
    "denoiser must be a pytree": lambda: sj.sampler(PlainDenoiser(), sj.blocks(4, 4)),
    "denoiser.affine must be a class variable": lambda: sj.sampler(
        LeafyDenoiser(), sj.blocks(4, 4)
    ),
    "steps must be a multiple of the 2 blocks": lambda: sj.blocks(8, 3, 4),
    "length must be at least 1, got 0": lambda: sj.masked(sj.testing.ToyDenoiser(), length=0),
    "length must be a whole number, got '8'": lambda: sj.masked(
        sj.testing.ToyDenoiser(), length="8"
    ),
    "prompts must hold at least one": lambda: sj.canvas([], 4, mask_id=0),
    "denoiser must have read, head, tables": lambda: sj.sampler(object(), sj.blocks(4, 4)),
    "record must be one of": lambda: sj.sampler(
        sj.testing.ToyDenoiser(), sj.blocks(4, 4), record="everything"
    ),
}


@pytest.fixture
def as_users_run_it():
    """Without the tests' run-time type checks, which would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("rule", MISTAKES)
def test_mistakes_are_told(rule):
    with pytest.raises(ValueError, match=re.escape(rule)) as error:
        MISTAKES[rule]()
    assert re.search(r", got .*; .*\.$", str(error.value), re.S), "rule, got, remedy"


def test_traced_numbers_are_not_checked():
    jax.jit(lambda sigma: sj.sake(1.0, bandwidth=sigma).bandwidth)(2.0)


def test_wrong_table_width():
    params, view = toy_params(0), toy_view(0)
    ctx = toy_context(params, view)
    narrow = dataclasses.replace(ctx.tables, input=ctx.tables.input[:, :-1])
    ctx = dataclasses.replace(ctx, tables=narrow)
    composed = sj.chain(sj.sake(1.0, table="input"))
    with pytest.raises(ValueError, match="the input table must be as wide as the features"):
        guide(composed, composed.init(ctx), ctx)


def test_masking_needs_a_mask_token():
    view = toy_view(0).replace(mask_id=None)
    for guidance in (sj.classifier_free(1.0), sj.adaptive_free(1.0)):
        with pytest.raises(ValueError, match="must have a mask token"):
            outcome(guidance, toy_params(0), view)
    with pytest.raises(ValueError, match="must have a condition to replace"):
        outcome(sj.classifier_free(1.0, sj.with_label(1)), toy_params(0), view.replace(cond=None))
    with pytest.raises(ValueError, match="an absorbing process must have a mask token"):
        sj.absorbing().log_q(jnp.zeros((4, 6, 17)), view)
    with pytest.raises(ValueError, match="must have 2 samples of each prompt"):
        outcome(sj.sake(1.0, scope="batch"), toy_params(0), toy_view(0).replace(samples=1))
    bent = toy_context(toy_params(0), toy_view(0), affine=False)
    composed = sj.chain(sj.classifier_free(1.0))
    with pytest.raises(ValueError, match="must have a denoiser with an affine head"):
        guide(composed, composed.init(bent), bent)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_spoils_no_other(bad):
    """Guidance does not repair broken logits, and keeps them where they are: in their row.

    The run marks such rows in `Info.finite`.
    """
    params, view = toy_params(0), toy_view(0)
    ctx = toy_context(params, view)
    broken = ctx.features.at[0].set(bad)
    for guidance in (sj.sake(1.0), sj.chain(sj.top_p(0.9), sj.sake(1.0, kl_budget=0.1))):
        composed = sj.chain(guidance)
        sick = dataclasses.replace(ctx, features=broken)
        healthy = guide(composed, composed.init(ctx), ctx).logits
        result = guide(composed, composed.init(sick), sick).logits
        np.testing.assert_allclose(result[1:], healthy[1:], atol=1e-5)
        assert not bool(jnp.all(jnp.isfinite(result[0])))
