"""Reads with a cache: what is recomputed, what is kept, against the reference's caches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from conftest import GOLDENS
from networks import close, view_of
from sake_jax.view import Reread
from traces import traced


@pytest.fixture(scope="module")
def llada():
    return sj.load(GOLDENS / "llada")


def filled(lm, tokens, width):
    """A cache after a full read."""
    view = view_of(lm, tokens, start=0, width=width, span=None)
    cache = lm.denoiser.empty_cache(lm.params, *tokens.shape)
    return lm.denoiser.read(lm.params, view, cache)


def heads_first(kept):
    return np.swapaxes(kept, 2, 3)


def test_a_refresh_fills_the_cache_as_fast_dllm_does(llada, golden):
    g = golden("llada/golden_fastdllm.npz")
    features, cache = filled(llada, g["x_full"], 5)
    close(llada.denoiser.head(llada.params, features), g["logits_full_x"])
    np.testing.assert_allclose(heads_first(cache.kv.keys), g["keys_prerope"], atol=2e-4)
    np.testing.assert_allclose(heads_first(cache.kv.values), g["values"], atol=2e-4)


def test_prefix_cache_recomputes_the_block_and_what_follows(llada, golden):
    g = golden("llada/golden_fastdllm.npz")
    start, stop = (int(at) for at in g["block"])
    _, cache = filled(llada, g["x_full"], stop - start)
    rest = g["y_full"].shape[1] - start
    view = view_of(llada, g["y_full"], start=start, width=stop - start, span=(0, rest))
    features, _ = llada.denoiser.read(llada.params, view, cache)
    close(llada.denoiser.head(llada.params, features[:, start:]), g["logits_prefix_cache"])


def test_dual_cache_recomputes_the_block_and_keeps_all_features(llada, golden):
    g = golden("llada/golden_fastdllm.npz")
    start, stop = (int(at) for at in g["block"])
    before, cache = filled(llada, g["x_full"], stop - start)
    view = view_of(llada, g["y_full"], start=start, width=stop - start)
    features, cache = jax.jit(llada.denoiser.read)(llada.params, view, cache)
    close(llada.denoiser.head(llada.params, features[:, start:stop]), g["logits_dual_cache"])
    np.testing.assert_allclose(heads_first(cache.kv.keys), g["keys_prerope_after_dual"], atol=2e-4)
    np.testing.assert_allclose(heads_first(cache.kv.values), g["values_after_dual"], atol=2e-4)
    np.testing.assert_array_equal(features[:, :start], before[:, :start])
    np.testing.assert_array_equal(features[:, stop:], before[:, stop:])


def test_a_refresh_can_be_decided_inside_a_program(llada, golden):
    g = golden("llada/golden_fastdllm.npz")
    _, cache = filled(llada, g["x_full"], 5)
    read = jax.jit(traced(llada.denoiser.read))
    view = view_of(llada, g["y_full"], start=int(g["block"][0]), width=5)
    everything, window = (
        view.replace(reread=Reread(jnp.int32(at), (None, (0, 5)))) for at in (0, 1)
    )
    features, _ = read(llada.params, everything, cache)
    close(llada.denoiser.head(llada.params, features), g["logits_full_y"])
    kept, _ = read(llada.params, window, cache)
    assert not np.allclose(features, kept, atol=1e-3)


@pytest.mark.parametrize("name", ["llada", "llada_moe", "dream", "mdlm"])
@pytest.mark.parametrize("start", [0, 4, 9])
def test_a_window_of_an_unchanged_page_reads_as_before(name, start):
    """Also for Dream, whose first row of the window comes from the column before it."""
    lm = sj.load(GOLDENS / name)
    tokens = np.random.default_rng(0).integers(0, 250, (2, 14))
    attend = np.arange(14)[None, :] >= np.array([[0], [3]])
    view = view_of(lm, tokens, start=start, width=5, attend=attend)
    cache = lm.denoiser.empty_cache(lm.params, 2, 14)
    full, _ = lm.denoiser.read(lm.params, view, None)
    everything = view.replace(reread=Reread(jnp.int32(0), (None,)))
    first, cache = lm.denoiser.read(lm.params, everything, cache)
    again, _ = lm.denoiser.read(lm.params, view, cache)
    np.testing.assert_allclose(first, full, atol=2e-5)
    np.testing.assert_allclose(again, full, atol=2e-5)


def test_the_column_before_a_dream_window_is_recomputed():
    lm = sj.load(GOLDENS / "dream")
    tokens = np.random.default_rng(0).integers(0, 250, (1, 14))
    cache = filled(lm, tokens, 5)[1]
    changed = tokens.copy()
    changed[0, 3] = 1  # column 3 predicts token 4, the first of the window
    view = view_of(lm, changed, start=4, width=5)
    features, _ = lm.denoiser.read(lm.params, view, cache)
    stale, _ = lm.denoiser.read(lm.params, view_of(lm, tokens, start=4, width=5), cache)
    assert not np.allclose(features[:, 4], stale[:, 4], atol=1e-3)


def test_bd3lm_blocks_against_its_exact_cache_and_sliding_window(golden):
    lm, g = sj.load(GOLDENS / "bd3lm"), golden("bd3lm/golden_kvcache.npz")
    size, context = lm.config.network.block_size, lm.config.network.context
    batch, columns = g["noisy"].shape
    cache = lm.denoiser.empty_cache(lm.params, batch, columns)
    page = np.zeros((batch, columns), np.int32)
    read = jax.jit(lm.denoiser.read)
    for block in range(columns // size):
        start = block * size
        for kind in ("noisy", "clean"):
            page[:, start : start + size] = g[kind][:, start : start + size]
            view = view_of(lm, page.copy(), start=start, width=size)
            features, cache = read(lm.params, view, cache)
            logits = lm.denoiser.head(lm.params, features[:, start : start + size])
            close(logits, g[f"logits_{kind}"][:, block])
    assert columns > context, "the last blocks slide"
