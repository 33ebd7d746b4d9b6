"""An encoder with a decoder that is told what it predicted last, against DiffusionGemma's own."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from conftest import GOLDENS
from networks import close, view_of
from sake_jax.models import (
    EncoderDecoderConfig,
    abstract,
    flatten_params,
    forward,
    init,
    network_input,
)
from sake_jax.models.attention import frequencies, rotary_angles, rotate
from sake_jax.models.encoder_decoder import visible
from sake_jax.view import Reread

NAME, W = "diffusion_gemma", 6


@pytest.fixture(scope="module")
def lm():
    return sj.load(GOLDENS / NAME)


@pytest.fixture(scope="module")
def g(golden):
    return golden(f"{NAME}/golden.npz")


def text_and_window(g):
    return np.concatenate([g["input_ids"], g["canvas"]], axis=1)


@functools.partial(jax.jit, static_argnums=0)
def read_window(denoiser, params, view, cache):
    features, cache = denoiser.read(params, view, cache)
    return denoiser.head(params, view.window(features)), cache


SPANS = ((0, W), (W, W), None)
WINDOW, AND_BEFORE, ALL = range(3)


def logits_of(lm, g, start, encoded, cache):
    """Of a window among text, window and next window, and the cache after the read. One program
    serves them all: what is not there yet is hidden, as plans hide it."""
    tokens = np.concatenate([text_and_window(g), g["next_canvas"]], axis=1)
    attend = np.repeat(np.arange(tokens.shape[1])[None] < start + W, 2, axis=0)
    view = view_of(lm, tokens, start=start, width=W, attend=attend)
    view = view.replace(reread=Reread(jnp.int32(encoded), SPANS))
    if cache is None:
        cache = lm.denoiser.empty_cache(lm.params, *tokens.shape)
    return *read_window(lm.denoiser, lm.params, view, cache), view


def test_logits_and_hidden_states_equal_the_reference(lm, g):
    tokens = text_and_window(g)
    close(lm.logits(tokens)[:, -W:], g["logits"])
    hidden = lm.hidden(tokens)
    close(hidden[:, -W:], g["last_hidden"])
    close(hidden[:, :-W], g["encoder_last_hidden"])


def test_padding_on_the_left_is_not_seen(lm, g):
    attend = np.pad(g["attention_mask"], ((0, 0), (0, W)), constant_values=1)
    assert (attend[1] == 0).any()
    close(lm.logits(text_and_window(g), attend)[:, -W:], g["logits_left_padded"])


@pytest.mark.slow
def test_a_text_as_short_as_a_window_has_nothing_to_encode(lm, g):
    """The decoder alone: neither the text's length nor a prompt is a must."""
    both = lm.logits(g["canvas"])
    assert both.shape == (2, W, 128)
    assert np.isfinite(both).all()
    attend = np.arange(11 + W)[None] >= 11
    behind = lm.logits(text_and_window(g), np.repeat(attend, 2, axis=0))[:, -W:]
    close(behind, both)


def test_the_last_prediction_is_remembered(lm, g):
    first, cache, view = logits_of(lm, g, 11, ALL, None)
    close(first, g["logits"])
    told = jnp.asarray(g["self_conditioning_logits"])
    remembered = lm.denoiser.remember(lm.params, cache, told, view)
    second, *_ = logits_of(lm, g, 11, WINDOW, remembered)
    close(second, g["logits_self_conditioned"])
    # Row by row: one that was told nothing reads as at first.
    some = jnp.asarray(g["self_conditioning_mask"])[:, None, None]
    partly = remembered.replace(signal=jnp.where(some, remembered.signal, 0))
    close(logits_of(lm, g, 11, WINDOW, partly)[0], g["logits_self_conditioning_mask"])
    assert np.abs(second - first).max() > 1e-2


def test_keys_and_values_are_those_of_the_encoder(lm, g):
    """Its sliding layers keep the last columns only: those we do not look at any more."""
    kv = logits_of(lm, g, 11, ALL, None)[1].kv
    c, positions = lm.config.network, jnp.broadcast_to(jnp.arange(11), (2, 11))
    for at, kind in enumerate(c.kinds):
        place, own = c.kinds[:at].count(kind), c.of_kind(kind)
        theta = c.rope_theta if kind == "sliding" else c.full_theta
        turned = frequencies(theta, own.head_dim)
        if kind == "full":
            turned = jnp.where(jnp.arange(turned.size) < c.full_rotary_dim // 2, turned, 0)
        keys = rotate(kv[kind].keys[place][:, :11], rotary_angles(positions, turned))
        theirs = g[f"cache_layer{at}_keys"]
        close(np.moveaxis(np.asarray(keys), 1, 2)[:, :, -theirs.shape[2] :], theirs)
        values = np.moveaxis(np.asarray(kv[kind].values[place][:, :11]), 1, 2)
        close(values[:, :, -theirs.shape[2] :], g[f"cache_layer{at}_values"])


def test_a_finished_window_becomes_text_and_the_next_one_follows(lm, g):
    logits, cache, _ = logits_of(lm, g, 11, ALL, None)
    close(logits, g["logits"])
    logits, cache, _view = logits_of(lm, g, 11 + W, AND_BEFORE, cache)
    close(logits, g["logits_next_canvas"])
    close(cache.features[:, 11 : 11 + W], g["encoder_last_hidden_second_pass"])
    close(logits_of(lm, g, 11 + W, ALL, None)[0], g["logits_next_canvas"])


@pytest.mark.slow
def test_without_a_cache_everything_is_encoded(lm, g):
    view = logits_of(lm, g, 11 + W, ALL, None)[2].replace(reread=None)
    logits, cache = read_window(lm.denoiser, lm.params, view, None)
    close(logits, g["logits_next_canvas"])
    assert cache is None


SMALL = {"V": 32, "D": 16, "N": 5, "H": 4, "K": 2, "head_dim": 8, "F": 8, "context": 64}
MORE = {"experts": 4, "experts_per_token": 2, "dense_F": 12, "reach": 3, "window": 4}
FULL = {"full_K": 1, "full_head_dim": 8, "full_rotary_dim": 4}


@pytest.mark.slow
def test_layers_may_stand_in_any_order():
    """Five kinds that do not repeat, and kinds that do: the same layers, one after the other."""
    kinds = ("sliding", "full", "sliding", "sliding", "full")
    config = EncoderDecoderConfig(kinds=kinds, **SMALL, **MORE, **FULL)
    assert config.period == 5
    four = dataclasses.replace(config, N=4, kinds=("sliding", "full") * 2)
    assert four.period == 2
    params = init(four, jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (2, 11), 0, 32)
    inputs = network_input(_model(four), tokens)
    run = jax.jit(forward, static_argnums=0)
    rounds = run(four, params, inputs).features
    # The same parameters under the names of a network that does not know that it repeats.
    alone = _Unrepeated(**{f.name: getattr(four, f.name) for f in dataclasses.fields(four)})
    stacked = params["blocks"]
    layers = {
        f"layer{at}": jax.tree.map(lambda x, at=at: x[at // 2][None], stacked[f"layer{at % 2}"])
        for at in range(4)
    }
    assert set(flatten_params(abstract(alone))) == set(flatten_params(params | {"blocks": layers}))
    close(run(alone, params | {"blocks": layers}, inputs).features, rounds)


class _Unrepeated(EncoderDecoderConfig):
    @property
    def period(self):
        return self.N


def _model(network):
    return sj.conversion.family(NAME).model(network)


def test_the_window_sees_itself_and_so_much_before_it():
    """With a reach of 3 a window's columns see two before it, and each other whatever the reach."""
    config = EncoderDecoderConfig(kinds=("sliding",) * 4 + ("full",), **SMALL, **MORE, **FULL)
    tokens = jnp.zeros((1, 9), jnp.int32)
    inputs = network_input(_model(config), tokens, start=jnp.int32(5), width=4)
    decoder = inputs.replace(signal=jnp.zeros((1, 9, 16)))
    seen = np.asarray(visible(decoder, 3))[0]
    assert seen.tolist() == [[False] * 3 + [True] * 6] * 4
    assert np.asarray(visible(decoder, None)).all()
    seen = np.asarray(visible(inputs, 3))[0]
    assert [np.flatnonzero(row).tolist() for row in seen] == [
        [3, 4, 5],
        [4, 5, 6],
        [5, 6, 7],
        [6, 7, 8],
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kinds": ("sliding",)}, "kind of each layer"),
        ({"kinds": ("sliding",) * 4 + ("round",)}, "kind must be"),
        ({"full_K": 3}, "multiple of the key heads"),
        ({"experts_per_token": 5}, "between 1 and experts"),
        ({"full_rotary_dim": 10}, "even part"),
    ],
)
def test_impossible_sizes_are_refused(wrong, message):
    sizes = {"kinds": ("sliding",) * 4 + ("full",)} | SMALL | MORE | FULL
    with pytest.raises(ValueError, match=message):
        EncoderDecoderConfig(**sizes | wrong)
