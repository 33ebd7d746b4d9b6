"""Algorithm 1 of the paper in float64 numpy, line by line, against every form of the library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.guidance.diversity import diversity
from sake_jax.guidance.objectives import collision
from sake_jax.testing import ToyDenoiser, toy_params

MASK, LENGTH, STEPS, GAMMA, SIGMA, SIGMA_ATTN, TEMPERATURE = 16, 10, 5, 1.5, 3.0, 4.0, 0.8
PARAMS = toy_params(3)
PROMPT = [[1, 2, 3], [4, 5, 6]]
NOISE = np.random.default_rng(0).gumbel(size=(STEPS, 2, LENGTH, 17))


def algorithm_1(embedding):
    """The paper's pseudocode. Comments give its line numbers."""
    p = {name: np.asarray(value, np.float64) for name, value in PARAMS.items()}
    E = p[embedding]
    x = np.concatenate([np.array(PROMPT), np.full((2, LENGTH), MASK)], axis=1)  # 1
    L = x.shape[1]
    states = []
    for t in range(STEPS):  # 2
        for b in range(2):
            embedded = p["input"][x[b]] + p["place"][:L]
            H = np.tanh((embedded + embedded.mean(axis=0)) @ p["mix"]) * p["scale"]  # 3
            Z = H @ p["output"].T + p["bias"]
            K, K_attn = np.zeros((L, L)), np.zeros((L, L))
            for i in range(L):
                for j in range(L):
                    K[i, j] = np.exp(-np.sum((H[i] - H[j]) ** 2) / (2 * SIGMA**2))  # 4
                    K_attn[i, j] = np.exp(-((i - j) ** 2) / (2 * SIGMA_ATTN**2))  # 5
            G = np.zeros((H.shape[1], L))  # 6
            for i in range(L):  # 7
                g = sum((K_attn[i, j] * K[i, j]) ** 2 * (H[i] - H[j]) for j in range(L) if j != i)
                G[:, i] = 2 / SIGMA**2 * g  # 8, 9
            Psi = E @ G  # 11
            guided = Z + GAMMA * Psi.T  # 12
            # 13: the masking schedule N(t) of LLaDA: low-confidence remasking
            masked = np.flatnonzero(x[b] == MASK)
            drawn = np.argmax(guided[masked] / TEMPERATURE + NOISE[t, b, masked - 3], axis=1)
            chance = np.exp(guided[masked] - guided[masked].max(axis=1, keepdims=True))
            chance /= chance.sum(axis=1, keepdims=True)
            confidence = chance[np.arange(len(masked)), drawn]
            quota = -(-len(masked) // (STEPS - t))
            best = np.argsort(-confidence)[:quota]
            x[b, masked[best]] = drawn[best]
        states.append(x.copy())
    return np.stack(states)


def recorded_noise(keys, view, vocabulary):
    index = jnp.round(view.progress[0] * STEPS).astype(jnp.int32)
    noise = jnp.asarray(NOISE, jnp.float32)[index]
    return jax.lax.dynamic_slice_in_dim(noise, view.start - view.origin, view.width, axis=1)


OPTIONS = dict(bandwidth=SIGMA, attention_bandwidth=SIGMA_ATTN, normalize="none")
FORMS = {
    "paper": ("input", sj.paper_sake(GAMMA, SIGMA, SIGMA_ATTN), "brief"),
    "input table, autodiff": ("input", sj.sake(GAMMA, table="input", **OPTIONS), "brief"),
    "folded, autodiff": ("output", sj.sake(GAMMA, **OPTIONS), "brief"),
    "folded, closed form": ("output", sj.sake(GAMMA, gradient="closed_form", **OPTIONS), "brief"),
    "projected": ("output", sj.sake(GAMMA, **OPTIONS), "signal"),
    "as a general objective": ("output", diversity(collision, GAMMA, **OPTIONS), "brief"),
    "after a filter": ("output", sj.chain(sj.top_p(1.0), sj.sake(GAMMA, **OPTIONS)), "brief"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_draws_the_tokens_of_algorithm_1(form):
    embedding, guidance, record = FORMS[form]
    sampler = sj.sampler(
        ToyDenoiser(),
        sj.blocks(LENGTH, STEPS),
        guidance=guidance,
        draw=sj.temperature(TEMPERATURE),
        noise=recorded_noise,
        record=record,
    )
    canvas = sj.canvas(PROMPT, LENGTH, mask_id=MASK)
    *_, states = sj.run(sampler, PARAMS, jax.random.key(0), canvas, trajectory=True)
    expected = algorithm_1(embedding)
    assert (np.asarray(states)[-1] != MASK).all()
    np.testing.assert_array_equal(np.asarray(states), expected)


def test_the_guidance_matters_here():
    """The tokens above are not those of an unguided run, nor the same for both tables."""
    sampler = sj.sampler(
        ToyDenoiser(),
        sj.blocks(LENGTH, STEPS),
        draw=sj.temperature(TEMPERATURE),
        noise=recorded_noise,
    )
    canvas = sj.canvas(PROMPT, LENGTH, mask_id=MASK)
    unguided, _ = sj.run(sampler, PARAMS, jax.random.key(0), canvas)
    by_input, by_output = algorithm_1("input")[-1], algorithm_1("output")[-1]
    assert not np.array_equal(unguided.tokens, by_input)
    assert not np.array_equal(unguided.tokens, by_output)
    assert not np.array_equal(by_input, by_output)
