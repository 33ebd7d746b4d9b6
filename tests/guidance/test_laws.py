"""The laws of `sake_jax.testing`, over every public guidance."""

import inspect

import jax
import jax.numpy as jnp
import pytest
from flax import struct
from hypothesis import given, settings
from hypothesis import strategies as st

import registry
import sake_jax as sj
from sake_jax.guidance.compose import Chain
from sake_jax.testing import LAWS, check_guidance, outcome, toy_params, toy_view

ENTRIES = registry.ENTRIES
seeds = st.integers(0, 10_000)


def test_every_builder_is_registered():
    """A public function that returns a Guidance must be in the registry."""

    def makes_guidance(builder):
        returned = inspect.signature(builder).return_annotation
        return inspect.isclass(returned) and issubclass(returned, sj.Guidance)

    functions = {name: f for name, f in vars(sj).items() if inspect.isfunction(f)}
    builders = {name for name, f in functions.items() if makes_guidance(f)}
    assert builders >= {"sake", "chain", "top_p", "classifier_free"}
    assert builders == {entry.builder for entry in ENTRIES.values()}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", ENTRIES)
def test_law(name, law):
    entry = ENTRIES[name]

    @settings(max_examples=5)
    @given(seeds)
    def check(seed):
        LAWS[law](entry.guidance, seed, entry.permute)

    check()


@pytest.mark.parametrize("name", [n for n, e in ENTRIES.items() if e.guidance.couples_samples])
def test_samples_do_see_each_other_where_that_is_meant(name):
    scene = toy_params(0), toy_view(0)
    other = scene[1].replace(tokens=scene[1].tokens.at[0].set(3))  # the first sample of a prompt
    one, _ = outcome(ENTRIES[name].guidance, *scene)
    two, _ = outcome(ENTRIES[name].guidance, scene[0], other)
    assert not jnp.allclose(one[1], two[1], atol=1e-3)


NEUTRAL = {
    "identity": sj.identity(),
    "temperature(1)": sj.temperature(1.0),
    "top_p(1)": sj.top_p(1.0),
    "top_k(V)": sj.top_k(17),
    "min_p(0)": sj.min_p(0.0),
    "sake(0)": sj.sake(0.0),
    "sake(0, exact)": sj.sake(0.0, gradient="exact"),
    "matches(.*)": sj.matches(".*", [*"abcdefghijklmnopq"]),  # the mask is a text too
    "diversity(0)": sj.diversity(sj.von_neumann, 0.0),
    "distinct(0)": sj.distinct(0.0),
    "odd(0)": sj.odd(0.0),
    "dpp(0)": sj.dpp(0.0),
    "classifier_free(0)": sj.classifier_free(0.0),
    "classifier_free(0, posterior)": sj.classifier_free(0.0, form="posterior"),
    "adaptive_free(0)": sj.adaptive_free(0.0),
    "classifier_based(0)": sj.classifier_based(registry.classifier, registry.WEIGHTS, 0.0),
    "when, never": sj.when(sj.temperature(0.1), start=0.0, end=0.0),
}


@pytest.mark.parametrize("name", NEUTRAL)
@given(seeds)
def test_neutral_elements(name, seed):
    guided, base = outcome(NEUTRAL[name], toy_params(seed), toy_view(seed))
    assert jnp.allclose(jax.nn.softmax(guided), jax.nn.softmax(base), atol=1e-6)


@pytest.mark.parametrize("name", [n for n in ENTRIES if n != "identity"])
def test_registered_guidances_do_something(name):
    guided, base = outcome(ENTRIES[name].guidance, toy_params(3), toy_view(3))
    assert not jnp.allclose(jax.nn.softmax(guided), jax.nn.softmax(base), atol=1e-3)


@given(seeds, st.permutations(sorted(ENTRIES)))
@settings(max_examples=3)
def test_chain_is_associative(seed, names):
    a, b, c = (ENTRIES[name].guidance for name in names[:3])
    scene = toy_params(seed), toy_view(seed)
    flat, _ = outcome(sj.chain(a, b, c), *scene)
    left, _ = outcome(Chain((Chain((a, b)), c)), *scene)  # `chain` itself would flatten these
    right, _ = outcome(Chain((a, Chain((b, c)))), *scene)
    for nested in (left, right):
        assert jnp.allclose(jax.nn.softmax(flat), jax.nn.softmax(nested), atol=1e-5)


def test_chain_flattens():
    a, b, c = sj.top_p(0.9), sj.sake(1.0), sj.temperature(0.5)
    assert sj.chain(sj.chain(a, sj.chain(b)), c).parts == (a, b, c)
    assert sj.chain(sj.identity(), a).parts == (a,)


def test_chain_goes_from_left_to_right():
    scene = toy_params(0), toy_view(0)
    cold_first, _ = outcome(sj.chain(sj.temperature(0.1), sj.top_p(0.9)), *scene)
    cut_first, _ = outcome(sj.chain(sj.top_p(0.9), sj.temperature(0.1)), *scene)
    kept = [jnp.sum(logits > -1e28, axis=-1) for logits in (cold_first, cut_first)]
    assert bool(jnp.all(kept[0] <= kept[1]))
    assert bool(jnp.any(kept[0] < kept[1]))


def test_check_guidance_finds_a_broken_law():
    def loud(logits, ctx):
        return logits * jnp.sum(logits, axis=-1, keepdims=True)

    with pytest.raises(AssertionError, match="law 'shift' is broken"):
        check_guidance(sj.transform(loud))


class Lawless(sj.Guidance):
    """Breaks a law of choice."""

    law: str = struct.field(pytree_node=False)

    def init(self, ctx):
        return jnp.float32(0)

    def apply(self, logits, psi, state, ctx):
        if self.law == "finite":
            top = jnp.max(logits, axis=-1, keepdims=True)
            spread = jnp.max(jnp.abs(ctx.rows - ctx.rows[:, :1]), axis=(1, 2), keepdims=True)
            return jnp.where(ctx.open[..., None], (logits - top) / spread, logits), state, None
        if self.law == "batch":
            return logits - jnp.mean(logits, axis=0, keepdims=True), state, None
        if self.law == "shapes":
            return logits, state.astype(jnp.float16), None
        return logits, state, None


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ("shapes", r"the state .* like that of `init`, got \['float16\[\]'\] .*; return the same"),
        ("finite", r"must be finite, got NaN or infinity with all rows equal; divide"),
        ("batch", r"must not depend on other rows .*, got probabilities .*declare couples_samples"),
    ],
)
def test_a_broken_law_says_rule_got_and_remedy(law, message):
    others = {"finite", "batch"} - {law}
    with pytest.raises(AssertionError, match=f"^law '{law}' is broken: .*{message}"):
        check_guidance(Lawless(law=law), skip={"permutation", "traces", "shift"} | others)
