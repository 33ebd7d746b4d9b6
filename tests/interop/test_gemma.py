"""gemma's sampler with our guidance, over a stand-in with the signatures of its documentation: the
package is in no registry."""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.interop import gemma

V, D, CAP = 11, 6, 30.0


@flax.struct.dataclass
class Output:
    logits: jax.Array
    hidden_states: jax.Array | None = None


@dataclasses.dataclass(frozen=True)
class Config:
    embed_dim: int = D


class Model:
    """`apply(variables, tokens=, sc_embeddings=, ..., method=)`, as a linen module has it."""

    config = Config()

    def apply(self, variables, *given, method=None, **options):
        table = variables["params"]["embedder"]["input_embedding"]
        if "sc_embeddings" not in options:
            return jax.nn.softmax(given[0]) @ table  # Embedder.encode_logits
        hidden = jnp.tanh(jnp.cumsum(table[options["tokens"]], axis=1) + options["sc_embeddings"])
        logits = CAP * jnp.tanh(hidden @ table.T / CAP)
        return Output(logits, hidden if options.get("return_hidden_states") else None)


@flax.struct.dataclass
class SampleStepOutput:
    sampled_tokens: jax.Array
    sc_embeddings: jax.Array
    logits: jax.Array


@dataclasses.dataclass(frozen=True)
class Halved:
    """In the place of their annealed temperature."""

    def __call__(self, logits, noise_proportion):
        return logits / (0.5 + noise_proportion[:, None, None])


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiffusionSampler:
    model: Model
    logit_shaper: object = Halved()

    def sample_step(
        self,
        *,
        canvas,
        sc_embeddings,
        cache,
        positions,
        attention_mask,
        sliding_attention_mask=None,
        current_noise_proportion,
        target_noise_proportion,
        params,
        rng,
    ):
        output = self.model.apply(
            {"params": params},
            tokens=canvas,
            sc_embeddings=sc_embeddings,
            cache=cache,
            positions=positions,
            attention_mask=attention_mask,
            sliding_attention_mask=sliding_attention_mask,
            method="call_with_self_conditioning",
        )
        shaped = self.logit_shaper(logits=output.logits, noise_proportion=current_noise_proportion)
        drawn = jax.random.categorical(rng, shaped)
        embedded = self.model.apply({"params": params}, shaped, method="encode_logits")
        return SampleStepOutput(drawn, embedded, shaped)


TABLE = jax.random.normal(jax.random.key(0), (V, D))
PARAMS = {"embedder": {"input_embedding": TABLE}}
CANVAS = jax.random.randint(jax.random.key(1), (2, 5), 0, V)
NOISE = jnp.array([0.75, 0.75])


def step(sampler):
    def run(params):
        return sampler.sample_step(
            canvas=CANVAS,
            sc_embeddings=jnp.zeros((2, 5, D)),
            cache=None,
            positions=jnp.broadcast_to(jnp.arange(5), (2, 5)),
            attention_mask=None,
            current_noise_proportion=NOISE,
            target_noise_proportion=NOISE - 0.25,
            params=params,
            rng=jax.random.key(2),
        )

    return jax.jit(run)(PARAMS)


def test_hidden_states_reach_the_guidance():
    plain = DiffusionSampler(model=Model())
    guidance = sj.chain(sj.sake(2.0), sj.top_p(0.9))
    guided = step(gemma.guided_sampler(plain, guidance))
    hidden = jnp.tanh(jnp.cumsum(TABLE[CANVAS], axis=1))
    expected, _ = sj.guided_logits(
        guidance,
        tokens=CANVAS,
        features=hidden,
        head=lambda rows: CAP * jnp.tanh(rows @ TABLE.T / CAP),
        tables=sj.Tables(TABLE, TABLE),
        open=jnp.ones((2, 5), bool),
        progress=0.25,
        affine=False,
    )
    shaped = expected / (0.5 + NOISE[:, None, None])
    np.testing.assert_allclose(guided.logits, shaped, rtol=1e-4, atol=1e-4)
    drawn = jax.random.categorical(jax.random.key(2), shaped)
    np.testing.assert_array_equal(guided.sampled_tokens, drawn)
    assert not np.allclose(guided.logits, step(plain).logits, atol=1e-3)
    nothing = step(gemma.guided_sampler(plain, sj.sake(0.0)))
    np.testing.assert_allclose(nothing.logits, step(plain).logits, atol=1e-5)


def test_samples_and_another_table():
    plain = DiffusionSampler(model=Model())
    apart = sj.sake(2.0, scope="batch", self_term=0.0)
    table = lambda params: 2 * params["embedder"]["input_embedding"]  # noqa: E731
    one = step(gemma.guided_sampler(plain, apart, samples=2))
    two = step(gemma.guided_sampler(plain, apart, samples=2, table=table))
    assert not np.allclose(one.logits, step(plain).logits, atol=1e-3)
    np.testing.assert_allclose(one.logits, two.logits, rtol=1e-3, atol=1e-3)  # unit size


def test_a_guided_sampler_is_a_static_argument():
    plain = DiffusionSampler(model=Model())
    guided = gemma.guided_sampler(plain, sj.forbid([1]))
    assert hash(guided) == hash(guided)
    assert isinstance(guided, DiffusionSampler)
    assert guided != gemma.guided_sampler(plain, sj.forbid([1]))


def test_logit_shapers():
    guidance = sj.chain(sj.top_k(3), sj.temperature(sj.linear(1.0, 0.0)))
    shaper = gemma.logit_shaper(guidance, then=Halved())
    sampler = DiffusionSampler(model=Model(), logit_shaper=shaper)
    logits = step(sampler).logits
    assert ((logits > -1e28).sum(axis=-1) == 3).all()
    base = step(DiffusionSampler(model=Model())).logits
    kept = logits > -1e28
    np.testing.assert_allclose(logits[kept], (base / 0.75)[kept], rtol=1e-4)
    half = gemma.logit_shaper(sj.temperature(0.5))(jnp.ones((1, 2, 3), jnp.bfloat16), jnp.ones(1))
    assert half.dtype == jnp.bfloat16
    assert float(half[0, 0, 0]) == 2


def test_samples_are_told_apart_by_a_shaper():
    logits = jnp.zeros((2, 3, 5)).at[0, 0, 1].set(1.0)
    shaper = gemma.logit_shaper(sj.odd(4.0), samples=2)
    assert not np.allclose(shaper(logits, jnp.ones(2)), logits, atol=1e-3)


def test_what_needs_hidden_states_is_refused_as_a_shaper():
    with pytest.raises(ValueError, match=r"must need logits only.*use guided_sampler"):
        gemma.logit_shaper(sj.chain(sj.top_p(0.9), sj.sake(1.0)))
