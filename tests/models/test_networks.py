"""The networks themselves: shapes, names of axes, scanned layers, fresh parameters."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import sake_jax as sj
from conftest import GOLDENS
from networks import close
from sake_jax.models import (
    DiTConfig,
    NetworkInput,
    TransformerConfig,
    abstract,
    flatten_params,
    forward,
    init,
    language,
    layers,
    network,
)
from sake_jax.models.experts import Experts
from sake_jax.sharding import RULES, spec
from traces import traced

SMALL = TransformerConfig(V=20, D=16, N=3, H=4, K=2, F=24, head_dim=4, context=32)
VARIANTS = {
    "plain": SMALL,
    "experts": dataclasses.replace(SMALL, experts=5, experts_per_token=2, qk_norm=True),
    "shares": dataclasses.replace(
        SMALL, experts=5, experts_per_token=2, normalize_experts=True, qk_norm=True
    ),
    "gpt2": dataclasses.replace(
        SMALL, K=4, norm="layer", mlp="gelu", rope_theta=None, bias=True, qkv_bias=True,
        fused_qkv=True, tied=True, causal=True,
    ),
    "dit": DiTConfig(V=20, D=16, N=3, H=4, F=64, context=32, cond_dim=8, classes=3,
                     time_conditioning=True, block_size=4, stored_limits=True),
}  # fmt: skip


def input_of(tokens) -> NetworkInput:
    tokens = jnp.asarray(tokens, jnp.int32)
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    return NetworkInput(tokens, positions, jnp.ones(tokens.shape, bool))


def features(config, params, tokens):
    ids = input_of(tokens)
    return forward(config, params, ids).features


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("quantized", [False, True])
def test_fresh_parameters_have_the_abstract_shapes_and_named_axes(name, quantized):
    config = dataclasses.replace(VARIANTS[name], quantized=quantized)
    params = flatten_params(init(config, jax.random.key(0)))
    expected, axes = flatten_params(abstract(config)), network.param_axes(config)
    assert params.keys() == expected.keys() == axes.keys()
    for path, leaf in params.items():
        assert leaf.shape == expected[path].shape
        assert leaf.dtype == expected[path].dtype
        assert len(axes[path]) == leaf.ndim, path
        assert (axes[path][:1] == ("layers",)) == path.startswith("blocks."), path
        assert len(spec(leaf.shape, axes[path], dict.fromkeys(RULES.values(), 2))) == leaf.ndim


def test_every_kernel_of_a_transformer_is_split_by_a_tensor_mesh():
    axes = network.param_axes(SMALL)
    whole_ones = {
        path
        for path, names in axes.items()
        if not {"vocab", "heads", "kv_heads", "mlp"} & set(names)
    }
    assert whole_ones == {"blocks.attention_norm.weight", "blocks.mlp_norm.weight", "norm.weight"}


@pytest.mark.parametrize("name", VARIANTS)
def test_scanned_layers_equal_unrolled_ones(name, monkeypatch):
    config = VARIANTS[name]
    params = init(config, jax.random.key(1))
    tokens = np.random.default_rng(0).integers(0, 20, (2, 8))
    unrolled = jax.jit(features, static_argnums=0)(config, params, tokens)
    monkeypatch.setattr(layers, "UNROLLED", 0)
    scanned = jax.jit(lambda *a: features(config, *a))(params, tokens)
    np.testing.assert_allclose(scanned, unrolled, atol=1e-5)


def test_a_deep_model_is_no_longer_program():
    """The point of scanning: the text of the program does not grow with the layers."""

    def length(layers: int) -> int:
        config = dataclasses.replace(SMALL, N=layers)
        tokens = jnp.zeros((1, 8), jnp.int32)
        lowered = jax.jit(features, static_argnums=0).lower(config, abstract(config), tokens)
        return len(lowered.as_text().splitlines())

    assert length(64) == length(16) < length(8)


def test_fresh_parameters_are_of_order_one_and_reproducible():
    first, again = (init(SMALL, jax.random.key(5)) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    kernel = first["blocks"]["mlp"]["down"]["kernel"]
    assert not np.allclose(kernel[0], kernel[1]), "layers differ"
    np.testing.assert_allclose(np.std(kernel), 24**-0.5, rtol=0.2)
    out = features(SMALL, first, np.arange(8)[None] % 20)
    np.testing.assert_allclose(np.sqrt(np.mean(out**2)), 1, rtol=0.05)


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_reach_every_trained_parameter(name):
    config = VARIANTS[name]
    params = init(config, jax.random.key(2))
    tokens = np.random.default_rng(0).integers(0, 20, (2, 8))
    denoiser = sj.models.NetworkDenoiser(config)

    @jax.jit
    def loss(params):
        ids = input_of(tokens)
        if config.classes:
            ids = ids.replace(cond=jnp.array([0, 1]), sigma=jnp.array([0.1, 0.5]))
        rows = forward(config, params, ids).features
        return jnp.mean(jax.nn.logsumexp(3 * denoiser.head(params, rows), axis=-1) ** 2)

    idle = {"frequencies", "lowest_noise", "highest_noise"}
    for path, gradient in flatten_params(jax.grad(loss)(params)).items():
        assert np.isfinite(gradient).all()
        assert np.any(gradient != 0) == (path not in idle), path


@pytest.mark.parametrize("name", ["experts", "shares"])
def test_experts_equal_a_loop_over_tokens(name):
    """Every chosen expert, one token at a time, in float64 numpy."""
    module = Experts(VARIANTS[name], rngs=nnx.Rngs(3))
    x = np.random.default_rng(1).normal(size=(2, 5, 16))
    ours = nnx.jit(module)(jnp.asarray(x, jnp.float32))
    p = {n: np.asarray(getattr(module, n).kernel[...], np.float64) for n in ("gate", "up", "down")}
    router, expected = np.asarray(module.router.kernel[...], np.float64), np.zeros_like(x)
    for at in np.ndindex(2, 5):
        scores = router @ x[at]
        chance = np.exp(scores) / np.exp(scores).sum()
        chosen = np.argsort(-chance)[:2]
        weights = chance[chosen] / (chance[chosen].sum() if name == "shares" else 1)
        for expert, weight in zip(chosen, weights, strict=True):
            gate, up = x[at] @ p["gate"][expert], x[at] @ p["up"][expert]
            hidden = gate / (1 + np.exp(-gate)) * up
            expected[at] += weight * (hidden @ p["down"][expert])
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_padding_changes_nothing_for_the_other_columns():
    lm = sj.load(GOLDENS / "dream")
    tokens = np.random.default_rng(2).integers(0, 250, (1, 9))
    padded = np.concatenate([np.full((1, 4), 280), tokens], axis=1)
    attend = np.arange(13)[None, :] >= 4
    close(lm.logits(padded, attend)[:, 4:], lm.logits(tokens))


def test_traces_once_for_other_tokens(monkeypatch):
    once = jax.jit(traced(language._forward.__wrapped__), static_argnums=0)
    monkeypatch.setattr(language, "_forward", once)
    lm = sj.load(GOLDENS / "llada")
    lm.logits(np.zeros((2, 11), int))
    lm.logits(np.ones((2, 11), int))
    lm.hidden(np.ones((2, 11), int), np.ones((2, 11)))


def test_bad_input_to_a_language_model():
    llada, udlm, mdlm, bd3lm = (sj.load(GOLDENS / n) for n in ("llada", "udlm", "mdlm", "bd3lm"))
    tokens = np.zeros((1, 4), int)
    with pytest.raises(ValueError, match="inside the vocabulary of 288"):
        llada.logits(tokens + 288)
    with pytest.raises(ValueError, match="whole numbers of shape"):
        llada.logits(tokens.astype(float))
    with pytest.raises(ValueError, match="whole numbers of shape"):
        llada.logits([1, 2])
    with pytest.raises(ValueError, match="at most 128 columns"):
        llada.logits(np.zeros((1, 129), int))
    with pytest.raises(ValueError, match="attend must have the tokens' shape"):
        llada.logits(tokens, np.ones((1, 3)))
    with pytest.raises(ValueError, match="score needs a causal model"):
        llada.score(tokens)
    with pytest.raises(ValueError, match="sigma is for networks"):
        mdlm.logits(tokens, sigma=[0.1])
    with pytest.raises(ValueError, match="pass sigma="):
        udlm.logits(tokens)
    with pytest.raises(ValueError, match="labels from 0 to 10"):
        udlm.logits(tokens, sigma=[0.1], cond=[11])
    with pytest.raises(ValueError, match="labels from 0 to 0"):
        mdlm.logits(tokens, cond=[0])
    with pytest.raises(ValueError, match="clean is for block diffusion"):
        mdlm.logits(tokens, clean=tokens)
    with pytest.raises(ValueError, match="clean must have"):
        bd3lm.logits(tokens, clean=np.zeros((1, 3), int))
    with pytest.raises(ValueError, match="must hold a tokenizer"):
        _ = llada.tokenizer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"K": 3}, "multiple of K"),
        ({"head_dim": 5}, "must be even"),
        ({"norm": "batch"}, "norm must be one of"),
        ({"mlp": "relu"}, "mlp must be one of"),
        ({"experts": 4, "experts_per_token": 5}, "between 1 and experts"),
    ],
)
def test_impossible_configs(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)
