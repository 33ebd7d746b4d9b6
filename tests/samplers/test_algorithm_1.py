"""Algorithm 1 of the paper in float64 numpy, line by line, against every form of the library.

On a toy network and on the LLaDA golden checkpoint, whose forward pass is written out here too.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.guidance.diversity import diversity
from sake_jax.guidance.objectives import collision
from sake_jax.testing import ToyDenoiser, toy_params

LENGTH, STEPS, SIGMA_ATTN, TEMPERATURE = 10, 5, 4.0, 0.8


@dataclasses.dataclass(frozen=True)
class Scene:
    """A network twice: as a denoiser, and in float64 numpy."""

    denoiser: Any
    params: Any
    forward: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    """Tokens of one row to (H, Z): final hidden states and logits."""
    tables: dict[str, np.ndarray]
    mask: int
    gamma: float
    sigma: float
    prompt: tuple[tuple[int, ...], ...] = ((1, 2, 3), (4, 5, 6))

    @property
    def noise(self) -> np.ndarray:
        V = self.tables["input"].shape[0]
        return np.random.default_rng(0).gumbel(size=(STEPS, 2, LENGTH, V))


def toy() -> Scene:
    params = toy_params(3)
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}

    def forward(x):
        embedded = p["input"][x] + p["place"][: len(x)]
        H = np.tanh((embedded + embedded.mean(axis=0)) @ p["mix"]) * p["scale"]
        return H, H @ p["output"].T + p["bias"]

    return Scene(ToyDenoiser(), params, forward, p, mask=16, gamma=1.5, sigma=3.0)


def llada() -> Scene:
    lm = sj.load(GOLDENS / "llada")
    stored = load_file(GOLDENS / "llada" / "model.safetensors")
    p = {
        name.removeprefix("model.transformer."): w.astype(np.float64) for name, w in stored.items()
    }
    width = 12
    frequency = 500_000.0 ** (-np.arange(0, width, 2) / width)

    def norm(x, weight):
        return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-5) * weight

    def turned(x):
        angle = np.outer(np.arange(len(x)), frequency)
        a, b = np.split(x, 2, axis=1)
        return np.hstack(
            [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)]
        )

    def forward(x):
        h = p["wte.weight"][x]
        for layer in range(2):
            w = {n.split(".", 2)[2]: v for n, v in p.items() if n.startswith(f"blocks.{layer}.")}
            rows = norm(h, w["attn_norm.weight"])
            q, k, v = (rows @ w[f"{n}_proj.weight"].T for n in "qkv")
            mixed = []
            for head in range(4):
                own = slice(head * width, (head + 1) * width)
                scores = turned(q[:, own]) @ turned(k[:, own]).T / np.sqrt(width)
                chance = np.exp(scores - scores.max(axis=1, keepdims=True))
                mixed.append(chance / chance.sum(axis=1, keepdims=True) @ v[:, own])
            h = h + np.hstack(mixed) @ w["attn_out.weight"].T
            rows = norm(h, w["ff_norm.weight"])
            gate = rows @ w["ff_proj.weight"].T
            h = (
                h
                + (gate / (1 + np.exp(-gate)) * (rows @ w["up_proj.weight"].T))
                @ w["ff_out.weight"].T
            )
        H = norm(h, p["ln_f.weight"])
        return H, H @ p["ff_out.weight"].T

    tables = {"input": p["wte.weight"], "output": p["ff_out.weight"]}
    return Scene(lm.denoiser, lm.params, forward, tables, mask=270, gamma=4.0, sigma=7.0)


SCENES = {"toy": functools.cache(toy), "llada": functools.cache(llada)}


def algorithm_1(scene: Scene, embedding: str):
    """The paper's pseudocode. Comments give its line numbers."""
    E, sigma, mask, noise = scene.tables[embedding], scene.sigma, scene.mask, scene.noise
    x = np.concatenate([np.array(scene.prompt), np.full((2, LENGTH), mask)], axis=1)  # 1
    L = x.shape[1]
    states = []
    for t in range(STEPS):  # 2
        for b in range(2):
            H, Z = scene.forward(x[b])  # 3
            K, K_attn = np.zeros((L, L)), np.zeros((L, L))
            for i in range(L):
                for j in range(L):
                    K[i, j] = np.exp(-np.sum((H[i] - H[j]) ** 2) / (2 * sigma**2))  # 4
                    K_attn[i, j] = np.exp(-((i - j) ** 2) / (2 * SIGMA_ATTN**2))  # 5
            G = np.zeros((H.shape[1], L))  # 6
            for i in range(L):  # 7
                g = sum((K_attn[i, j] * K[i, j]) ** 2 * (H[i] - H[j]) for j in range(L) if j != i)
                G[:, i] = 2 / sigma**2 * g  # 8, 9
            Psi = E @ G  # 11
            guided = Z + scene.gamma * Psi.T  # 12
            # 13: the masking schedule N(t) of LLaDA: low-confidence remasking
            masked = np.flatnonzero(x[b] == mask)
            drawn = np.argmax(guided[masked] / TEMPERATURE + noise[t, b, masked - 3], axis=1)
            chance = np.exp(guided[masked] - guided[masked].max(axis=1, keepdims=True))
            chance /= chance.sum(axis=1, keepdims=True)
            confidence = chance[np.arange(len(masked)), drawn]
            quota = -(-len(masked) // (STEPS - t))
            best = np.argsort(-confidence)[:quota]
            x[b, masked[best]] = drawn[best]
        states.append(x.copy())
    return np.stack(states)


def recorded(scene: Scene):
    """The scene's noise, by the step and the window's columns."""

    def noise(keys, view, vocabulary):
        index = jnp.round(view.progress[0] * STEPS).astype(jnp.int32)
        noise = jnp.asarray(scene.noise, jnp.float32)[index]
        return jax.lax.dynamic_slice_in_dim(
            noise, view.window_start - view.canvas.generation_start, view.width, axis=1
        )

    return noise


FORMS = {
    "paper": ("input", lambda s: sj.paper_sake(s.gamma, s.sigma, SIGMA_ATTN)),
    "input table, autodiff": ("input", lambda s: sj.sake(s.gamma, table="input", **options(s))),
    "folded, autodiff": ("output", lambda s: sj.sake(s.gamma, **options(s))),
    "folded, closed form": (
        "output",
        lambda s: sj.sake(s.gamma, gradient="closed_form", **options(s)),
    ),
    "projected": ("output", lambda s: sj.sake(s.gamma, **options(s))),
    "as a general objective": ("output", lambda s: diversity(collision, s.gamma, **options(s))),
    "after a filter": (
        "output",
        lambda s: sj.chain(sj.top_p(1.0), sj.sake(s.gamma, **options(s))),
    ),
}


def options(scene: Scene) -> dict[str, Any]:
    return {
        "bandwidth": scene.sigma,
        "attention_bandwidth": SIGMA_ATTN,
        "normalize": "none",
    }


def states(scene: Scene, guidance=None, record="brief"):
    sampler = sj.sampler(
        scene.denoiser,
        sj.blocks(LENGTH, STEPS),
        guidance=guidance,
        draw=sj.temperature(TEMPERATURE),
        noise=recorded(scene),
        record=record,
    )
    canvas = sj.canvas(scene.prompt, LENGTH, mask_id=scene.mask)
    *_, found = sj.run(sampler, scene.params, jax.random.key(0), canvas, trajectory=True)
    return np.asarray(found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SCENES)
def test_every_form_draws_the_tokens_of_algorithm_1(name, form):
    scene = SCENES[name]()
    embedding, guidance = FORMS[form]
    # Only with a record are base and signal projected apart; else the push folds into the rows.
    found = states(scene, guidance(scene), "signal" if form == "projected" else "brief")
    assert (found[-1] != scene.mask).all()
    np.testing.assert_array_equal(found, algorithm_1(scene, embedding))


@pytest.mark.parametrize("name", SCENES)
def test_the_guidance_matters_here(name):
    """The tokens above are not those of an unguided run, nor the same for both tables."""
    scene = SCENES[name]()
    unguided = states(scene)[-1]
    by_input, by_output = (algorithm_1(scene, table)[-1] for table in ("input", "output"))
    assert not np.array_equal(unguided, by_input)
    assert not np.array_equal(unguided, by_output)
    assert not np.array_equal(by_input, by_output)


def test_the_golden_forward_pass_is_the_references(golden):
    g = golden("llada/golden.npz")
    H, Z = llada().forward(g["input_ids"][0])
    np.testing.assert_allclose(H, g["last_hidden_nomask"][0], atol=2e-4)
    np.testing.assert_allclose(Z, g["logits_nomask"][0], atol=2e-4)
