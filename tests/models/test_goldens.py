"""Every family against the outputs of its original implementation, in float32."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import sake_jax as sj
from conftest import GOLDENS
from networks import close, view_of
from sake_jax.models import aligned_features, network_input, total_noise
from sake_jax.models.experts import Router
from sake_jax.models.visible import side_by_side, visible_keys
from tiers import few_quick

FAMILIES = (
    "llada",
    "llada_moe",
    "illada",
    "dream",
    "mdlm",
    "bd3lm",
    "udlm",
    "sdar",
    "llada2",
    "sedd",
    "sedd_uniform",
    "radd",
    "llama",
    "qwen2",
    "qwen3",
    "gpt2",
)


@pytest.fixture(scope="module")
def models():
    return {name: sj.load(GOLDENS / name) for name in FAMILIES}


LAWFUL = ("dream", "sdar", "sedd", *sorted({*FAMILIES} - {"dream", "sdar", "sedd"}))


@pytest.mark.parametrize("name", few_quick(LAWFUL, 3))
def test_every_family_obeys_the_laws_of_a_denoiser(name, models):
    """Padding among them: a shifted text's first row is its own, not what padding has."""
    sj.testing.check_denoiser(models[name])


@pytest.mark.parametrize("name", ["llada", "llada_moe", "dream"])
def test_masked_families_equal_the_reference(name, models, golden):
    lm, g = models[name], golden(f"{name}/golden.npz")
    attend = g["attention_mask"]
    # Dream's reference masks queries too, which leaves nothing to compare at padding.
    where = attend if name == "dream" else None
    close(lm.logits(g["input_ids"], attend), g["logits"], where)
    close(lm.hidden(g["input_ids"], attend), g["last_hidden"], where)
    close(lm.logits(g["input_ids"]), g["logits_nomask"])
    close(lm.hidden(g["input_ids"]), g["last_hidden_nomask"])


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gpt2", "illada"])
def test_families_equal_transformers(name, models, golden):
    lm, g = models[name], golden(f"{name}/golden.npz")
    attend = g["attention_mask"]
    close(lm.logits(g["input_ids"], attend), g["logits"], attend)
    close(lm.hidden(g["input_ids"], attend), g["last_hidden"], attend)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_score_is_the_log_probability_of_each_next_token(name, models, golden):
    lm, g = models[name], golden(f"{name}/golden.npz")
    wide = g["logits"].astype(np.float64)
    log_p = wide - np.log(np.sum(np.exp(wide), axis=-1, keepdims=True))
    expected = np.zeros(g["input_ids"].shape)
    expected[:, 1:] = np.take_along_axis(log_p[:, :-1], g["input_ids"][:, 1:, None], -1)[..., 0]
    expected *= g["attention_mask"]
    np.testing.assert_allclose(lm.score(g["input_ids"], g["attention_mask"]), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_score_does_not_depend_on_padding(name, models):
    tokens = np.random.default_rng(1).integers(0, 70, (1, 9))
    padded = np.concatenate([np.zeros((1, 4), int), tokens], axis=1)
    scores = models[name].score(padded, np.arange(13)[None] >= 4)
    np.testing.assert_allclose(scores[:, 4:], models[name].score(tokens), atol=2e-5)


def test_score_holds_few_logits_but_gives_all(models):
    """Longer than one chunk of columns."""
    lm = models["qwen3"]
    tokens = np.random.default_rng(0).integers(0, 70, (1, 64))
    whole = lm.score(tokens)
    np.testing.assert_allclose(whole[:, :40], lm.score(tokens[:, :40]), atol=1e-5)


def test_mdlm_equals_the_reference_without_and_with_time(models, golden):
    lm, g = models["mdlm"], golden("mdlm/golden.npz")
    close(lm.logits(g["input_ids"]), g["logits"])
    close(lm.hidden(g["input_ids"]), g["last_hidden"])
    network = dataclasses.replace(lm.config.network, time_conditioning=True)
    other = sj.LanguageModel(dataclasses.replace(lm.config, network=network), lm.params)
    close(other.logits(g["input_ids"], sigma=g["sigma"]), g["logits_alt"])


def test_mdlm_features_are_the_heads_input(models, golden):
    lm, g = models["mdlm"], golden("mdlm/golden.npz")
    view = view_of(lm, g["input_ids"], start=0, width=16)
    features, _ = lm.denoiser.read(lm.params, view, None)
    close(features, g["last_hidden_modulated"])
    close(lm.denoiser.head(lm.params, features), g["logits"])


def test_total_noise_is_the_references_schedule(golden):
    g = golden("mdlm/golden.npz")
    np.testing.assert_allclose(total_noise(jnp.asarray(g["t"])), g["sigma"], rtol=1e-5)


def test_udlm_equals_the_reference_with_each_kind_of_condition(models, golden):
    lm, g = models["udlm"], golden("udlm/golden.npz")
    read = lambda cond: lm.logits(g["input_ids"], sigma=g["sigma"], cond=cond)  # noqa: E731
    close(read(None), g["logits_no_cond"])
    close(read(g["cond"]), g["logits_cond"])
    close(read(g["uncond"]), g["logits_uncond"])
    close(lm.hidden(g["input_ids"], sigma=g["sigma"]), g["last_hidden_no_cond"])
    view = view_of(lm, g["input_ids"], start=0, width=14, time=jnp.asarray(g["t"]))
    view = view.replace(cond=jnp.asarray(g["cond"]))
    features, _ = lm.denoiser.read(lm.params, view, None)
    close(lm.denoiser.head(lm.params, features), g["logits_cond"])


@pytest.mark.parametrize("name", ["sedd", "sedd_uniform"])
def test_sedd_gives_log_scores(name, models, golden):
    lm, g = models[name], golden(f"{name}/golden.npz")
    scores = lm.logits(g["input_ids"], sigma=g["sigma"])
    close(scores, g["logits"])
    own = np.take_along_axis(np.asarray(scores), g["input_ids"][..., None], axis=-1)
    assert np.all(own == 0), "a token's score against itself is 1"
    close(lm.hidden(g["input_ids"], sigma=g["sigma"]), g["last_hidden"])
    if name == "sedd":
        network = dataclasses.replace(lm.config.network, scale_by_sigma=False)
        plain = sj.LanguageModel(dataclasses.replace(lm.config, network=network), lm.params)
        other = plain.logits(g["input_ids"], sigma=g["sigma"])
        close(other, g["logits_alt_scale_by_sigma_false"])


@pytest.mark.parametrize("name", ["sedd", "sedd_uniform"])
def test_sedd_is_told_the_noise_of_its_schedule(name, models, golden):
    """The samplers' time is turned into the recorded noise, and the head gives unscaled outputs."""
    lm, g = models[name], golden(f"{name}/golden.npz")
    noise = sj.LogLinear(0.0)
    network = dataclasses.replace(lm.config.network, noise=noise)
    lm = sj.LanguageModel(dataclasses.replace(lm.config, network=network), lm.params)
    time = -jnp.expm1(-jnp.asarray(g["sigma"]))  # of this schedule
    view = view_of(lm, g["input_ids"], start=0, width=16, time=time)
    features, _ = lm.denoiser.read(lm.params, view, None)
    low = g["sigma"] < 3  # above, one minus the time keeps too few digits
    assert low.any()
    close(features[low], g["last_hidden_modulated"][low])
    close(lm.denoiser.head(lm.params, features)[low], g["raw_output"][low])


def test_radd_equals_the_reference(models, golden):
    lm, g = models["radd"], golden("radd/golden.npz")
    logits = lm.logits(g["input_ids"])
    close(logits, g["logits"])
    close(lm.hidden(g["input_ids"]), g["last_hidden"])
    log_p = jax.nn.log_softmax(logits[..., :-1])  # the mask's own column has no meaning
    close(log_p, g["log_condition"][..., :-1])
    view = view_of(lm, g["input_ids"], start=0, width=16)
    features, _ = lm.denoiser.read(lm.params, view, None)
    close(features, g["last_hidden_normed"])


def test_bd3lm_training_form(models, golden):
    lm, g = models["bd3lm"], golden("bd3lm/golden.npz")
    close(lm.logits(g["xt"], clean=g["x0"]), g["logits"])
    close(lm.hidden(g["xt"], clean=g["x0"]), g["last_hidden"])


def test_bd3lm_training_mask(models, golden):
    lm, g = models["bd3lm"], golden("bd3lm/golden.npz")
    xt, x0 = jnp.asarray(g["xt"]), jnp.asarray(g["x0"])
    inputs = side_by_side(network_input(lm.config, xt, clean=x0))
    seen = visible_keys(lm.config.network, inputs, inputs.positions, inputs.attend)
    np.testing.assert_array_equal(seen[0], g["attention_mask_train"].astype(bool))


def test_bd3lm_sampling_form(models, golden):
    lm, g = models["bd3lm"], golden("bd3lm/golden.npz")
    close(lm.logits(g["xt"]), g["sample_mode_logits"])
    close(lm.logits(g["xt"][:, :12]), g["sample_mode_len_minus_block_logits"])


def test_dream_is_shifted_in_the_denoiser_only(models, golden):
    lm, g = models["dream"], golden("dream/golden.npz")
    view = view_of(lm, g["input_ids"], start=0, width=22)
    features, _ = lm.denoiser.read(lm.params, view, None)
    shifted = np.concatenate([g["logits_nomask"][:, :1], g["logits_nomask"][:, :-1]], axis=1)
    close(lm.denoiser.head(lm.params, features), shifted)


def test_sdar_equals_the_reference_with_both_masks(models, golden):
    lm, g = models["sdar"], golden("sdar/golden.npz")
    close(lm.logits(g["input_ids"]), g["logits"])
    close(lm.hidden(g["input_ids"]), g["last_hidden"])
    inputs = network_input(lm.config, jnp.asarray(g["input_ids"]))
    seen = visible_keys(lm.config.network, inputs, inputs.positions, inputs.attend)
    np.testing.assert_array_equal(seen[0], g["attention_mask_block_causal"].astype(bool))
    both_ways = dataclasses.replace(lm.config.network, block_size=0)
    features = aligned_features(both_ways, lm.params, inputs)
    close(lm.denoiser.head(lm.params, features), g["logits_bidirectional"])


def test_sdar_reads_finished_blocks_from_the_cache(models, golden):
    """The prompt's blocks first, then each block while it is noise, then once more when it is
    written: all of that is one read of the block and the one before."""
    lm, g = models["sdar"], golden("sdar/golden_kvcache.npz")
    clean, noisy = jnp.asarray(g["clean"]), jnp.asarray(g["noisy"])
    block = lm.config.network.block_size
    cache = lm.denoiser.empty_cache(lm.params, *clean.shape)
    first = view_of(lm, clean.at[:, 8:].set(lm.config.mask_id), start=4, width=4, span=None)
    features, cache = lm.denoiser.read(lm.params, first, cache)
    close(lm.denoiser.head(lm.params, features[:, :8]), g["logits_prefill"])
    for at in range(2):
        start = 8 + block * at
        tokens = clean.at[:, start:].set(noisy[:, start:])
        view = view_of(lm, tokens, start=start, width=block, span=(0, block))
        features, cache = lm.denoiser.read(lm.params, view, cache)
        rows = features[:, start : start + block]
        close(lm.denoiser.head(lm.params, rows), g["logits_noisy"][:, at])
        view = view_of(lm, clean, start=start, width=block, span=(0, block))
        features, cache = lm.denoiser.read(lm.params, view, cache)
        rows = features[:, start : start + block]
        close(lm.denoiser.head(lm.params, rows), g["logits_clean"][:, at])
    np.testing.assert_allclose(
        np.moveaxis(np.asarray(cache.kv.values), 2, 3), g["values"], atol=2e-4
    )


def test_sdar_training_form(models, golden):
    """Two texts that the reference packs into one row are two rows here."""
    lm, g = models["sdar"], golden("sdar/golden_train.npz")
    whole = g["concat_input_ids"][0]
    close(lm.logits(whole[None, :12], clean=whole[None, 12:]), g["logits"][:1, :12])
    packed, logits = g["concat_input_ids"][1], g["logits"][1]
    close(lm.logits(packed[None, :4], clean=packed[None, 4:8]), logits[None, :4])
    close(lm.logits(packed[None, 8:16], clean=packed[None, 16:]), logits[None, 8:16])


def test_llada2_equals_the_reference_with_both_masks(models, golden):
    lm, g = models["llada2"], golden("llada2/golden.npz")
    in_fours = lm.denoiser.with_block(4).config
    inputs = network_input(lm.config, jnp.asarray(g["input_ids"]))
    seen = visible_keys(in_fours, inputs, inputs.positions, inputs.attend)
    np.testing.assert_array_equal(seen[0], g["attention_mask_block_causal"].astype(bool))
    for network, name in (
        (in_fours, "logits"),
        (dataclasses.replace(in_fours, block_size=0), "logits_bidirectional"),
    ):
        features = aligned_features(network, lm.params, inputs)
        close(lm.denoiser.head(lm.params, features), g[name])
    close(aligned_features(in_fours, lm.params, inputs), g["last_hidden"])


def test_llada2_routes_as_the_reference(models, golden):
    lm, g = models["llada2"], golden("llada2/golden_routing.npz")
    router = Router(lm.config.network, rngs=nnx.Rngs(0))
    stored = lm.params["blocks"]["mlp"]["router"]
    at = np.flatnonzero((np.asarray(stored["bias"]) == g["expert_bias"]).all(axis=1))[0]
    router.kernel.value, router.bias.value = stored["kernel"][at], stored["bias"][at]
    weights, experts = router(jnp.asarray(g["hidden"]))
    dense = np.zeros(g["dense_weight"].shape, np.float32)
    np.put_along_axis(dense, np.asarray(experts), np.asarray(weights), axis=1)
    np.testing.assert_allclose(dense, g["dense_weight"], atol=1e-5)
    np.testing.assert_array_equal(np.sort(experts, axis=1), np.sort(g["topk_index"], axis=1))
