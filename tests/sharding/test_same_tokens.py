"""Eight devices write the tokens of one, and no device ever holds the logits of all."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshes
import sake_jax as sj
from sake_jax import reveal
from sake_jax.guidance.select import largest
from sake_jax.models import grouped

MODELS = ("llada", "dream", "mdlm", "sedd", "radd", "bd3lm", "sdar", "llada2", "tinystories")
MODELS += ("diffusion_gemma",)
MESHES = ((8, 1, 1), (2, 2, 2), (1, 4, 2))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """With the CPU's usual blocks of rows, some experts' arrays have as many rows as there are
    tokens in a vocabulary, and could not be told from a whole table."""
    monkeypatch.setattr(grouped, "MOST", 32)


@functools.lru_cache(maxsize=4)
def on_one_device(name, choices):
    """A model, its sampler, and what they write."""
    lm = meshes.load(name)
    sampler = meshes.sampler_for(lm, **dict(choices))
    return lm, sampler, *meshes.run(lm, sampler)[:2]


def compare(name, sizes, guidance, **options) -> None:
    """The same tokens; on the mesh, no whole vocabulary on any device."""
    choices = {"guidance": guidance, **options}
    # A form holds arrays, so it is no key.
    once = on_one_device.__wrapped__ if guidance.joint else on_one_device
    alone, sampler, expected, before = once(name, tuple(choices.items()))
    spread = meshes.load(name, sizes)
    found, after, text = meshes.run(spread, sampler)
    meshes.same(expected, found, told=hasattr(alone.denoiser, "remember"))
    np.testing.assert_allclose(before.entropy, after.entropy, atol=1e-4)
    batch, vocabulary = found.tokens.shape[0], alone.config.network.V
    assert not [s for s in meshes.gathered(text) if batch in s and max(s) >= vocabulary]
    if sizes[2] > 1:
        assert not meshes.whole_vocabulary(text, spread)


def test_a_gathered_vocabulary_would_be_seen():
    """`jax.lax.top_k` gathers: the checks of a program's text can fail."""
    lm = meshes.load("llada", (4, 1, 2))
    look = jax.jit(lambda params, rows: jax.lax.top_k(lm.denoiser.head(params, rows), 2))
    text = look.lower(lm.params, jnp.ones((8, 4, 48))).compile().as_text()
    assert meshes.whole_vocabulary(text, lm)
    assert [s for s in meshes.gathered(text) if max(s) >= 288]


def test_largest_is_top_k():
    """Equal values too: the first of them comes first."""
    values = jax.random.randint(meshes.KEY, (3, 4, 30), 0, 9).astype(jnp.float32)
    for ours, theirs in zip(largest(values, 5), jax.lax.top_k(values, 5), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_heads_on_eight_devices_with_an_odd_vocabulary():
    """Tables pad, key heads are computed everywhere, samples of a prompt repel each other."""
    guidance = sj.chain(sj.top_p(0.9), sj.sake(1.0, scope="both", self_term=0.5))
    compare(meshes.ODD, (1, 1, 8), guidance, cache="dual")


@pytest.mark.slow
def test_a_form_on_all_three_axes():
    """Sums over classes of tokens, where each device has some of the tokens."""
    form = sj.matches("[a-z ,.]*[.]", meshes.load("tinystories").tokenizer)
    compare("tinystories", (2, 2, 2), sj.chain(sj.sake(1.0), form))


@pytest.mark.slow
def test_all_three_axes_without_the_prompt():
    """Pushes folded into the head, samples of a prompt on different devices."""
    guidance = sj.chain(sj.classifier_free(1.5), sj.sake(1.0, scope="batch", self_term=0.0))
    compare("mdlm", (2, 2, 2), guidance)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", MESHES, ids=str)  # the innermost loop: one device runs once
@pytest.mark.parametrize("guidance", meshes.GUIDANCES)
@pytest.mark.parametrize("name", MODELS)
def test_every_family_on_every_mesh(name, sizes, guidance):
    affine = meshes.load(name).denoiser.affine
    if not affine and guidance == "without the prompt":
        pytest.skip("classifier-free guidance needs an affine head")
    masked = meshes.load(name).config.sampler == "masked"
    cached = masked and guidance == "without the prompt"
    options = {"cache": "dual"} if cached else {}
    compare(name, sizes, meshes.GUIDANCES[guidance], **options)


@pytest.mark.slow
@pytest.mark.parametrize("config", [meshes.ODD, meshes.TIED], ids=["odd", "tied"])
@pytest.mark.parametrize("guidance", meshes.GUIDANCES)
def test_eight_heads_on_eight_devices(config, guidance):
    compare(config, (1, 1, 8), meshes.GUIDANCES[guidance], cache="dual")


@pytest.mark.slow
@pytest.mark.parametrize("source", ["expected", "predicted", "input"])
@pytest.mark.parametrize("gradient", ["autodiff", "exact"])
def test_other_forms_of_sake(source, gradient, monkeypatch):
    monkeypatch.setattr("sake_jax.guidance.forces.CHUNK", 64)
    guidance = sj.sake(1.0, source=source, table="input", gradient=gradient, kl_budget=0.3)
    compare(meshes.ODD, (2, 1, 4), guidance, reveal=reveal.low_entropy, ends="late", end_ids=(7,))


@pytest.mark.slow
def test_what_is_recorded_is_not_gathered():
    options = {"reveal": reveal.margin, "record": "full", "cache": "prefix"}
    compare(meshes.ODD, (2, 1, 4), sj.chain(sj.min_p(0.01), sj.sake(1.0)), **options)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", MESHES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_logits_of_every_family(name, sizes):
    alone, spread = meshes.load(name), meshes.load(name, sizes)
    tokens = jax.random.randint(meshes.KEY, (8, 16), 0, min(250, alone.config.network.V))
    sigma = np.ones(8) if alone.config.network.time_conditioning else None
    expected = np.asarray(alone.logits(tokens, sigma=sigma))
    found = np.asarray(spread.logits(tokens, sigma=sigma))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
