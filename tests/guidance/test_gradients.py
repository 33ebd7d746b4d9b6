"""The diversity gradient: `jax.grad` against the paper's closed form, and its constants."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from sake_jax.guidance import forces
from sake_jax.guidance.kernels import Peers, collisions, density
from sake_jax.guidance.objectives import collision, renyi
from scenes import assert_close, group, scene, seeds

closed_form = jax.jit(functools.partial(forces.closed_form, collision))
auto_collision = jax.jit(functools.partial(forces.autodiff, collision))
auto_entropy = jax.jit(functools.partial(forces.autodiff, renyi(2)))


def by_the_book(peers: Peers) -> np.ndarray:
    """Proposition 4.2 in float64, one pair at a time, for all rows."""
    rows = np.asarray(peers.rows, np.float64)
    weight = np.asarray(peers.weight, np.float64)
    sigma, sigma_attn = float(peers.bandwidth), float(peers.attention_bandwidth)
    gradient = np.zeros_like(rows)
    for i in range(len(rows)):
        for j in range(len(rows)):
            if i == j or weight[i] == 0 or weight[j] == 0:
                continue
            near = np.exp(-((i - j) ** 2) / (2 * sigma_attn**2))
            alike = np.exp(-np.sum((rows[i] - rows[j]) ** 2) / (2 * sigma**2))
            gradient[i] += 2 / sigma**2 * near**2 * alike**2 * (rows[i] - rows[j])
    return gradient


@given(seeds)
def test_grad_equals_closed_form_in_float32(seed):
    rows, peers = scene(seed)
    chex.assert_type(rows, jnp.float32)
    closed = closed_form(rows, peers)
    auto = auto_collision(rows, peers)
    assert_close(auto.direction, closed.direction, 1e-6, _size(closed, rows))
    assert_close(auto.self_weight, closed.self_weight, 1e-6)
    assert_close(auto.redundancy, closed.redundancy, 1e-6)


@given(seeds)
def test_grad_equals_closed_form_in_float64(seed):
    with jax.enable_x64(True):
        rows, peers = scene(seed, jnp.float64)
        closed = closed_form(rows, peers)
        auto = auto_collision(rows, peers)
        chex.assert_type(auto.direction, jnp.float64)
        assert_close(auto.direction, closed.direction, 1e-12, _size(closed, rows))
        expected = by_the_book(peers)[np.asarray(peers.index)]
        assert_close(closed.direction, expected, 1e-12, _size(closed, rows))


def _size(force, rows):
    """max |C|. Where duplicates dominate, C is what is left of two halves that cancel, and
    rounding is relative to these; a fifth of the larger one counts then."""
    halves = np.abs(np.asarray(force.self_weight)[:, None] * np.asarray(rows)).max()
    return max(np.abs(np.asarray(force.direction)).max(), 0.2 * halves)


@given(seeds)
def test_factors_of_the_norm_and_of_the_entropy(seed):
    """grad(-F) = 2C, grad(-F/2) = C and grad H_2 = (2/F) C, with F = |K o K_attn|²."""
    with jax.enable_x64(True):
        _, peers = scene(seed, jnp.float64)
        length = peers.rows.shape[0]
        peers = peers.replace(index=jnp.arange(length), offset=jnp.zeros(length))
        count = peers.weight.sum()

        @jax.jit
        def norm(rows):
            return jnp.sum(jnp.square(density(rows, peers) * count))

        closed = closed_form(peers.rows, peers)
        size = _size(closed, peers.rows)
        assert_close(jax.grad(lambda r: -norm(r))(peers.rows), 2 * closed.direction, 1e-12, size)
        half = jax.grad(lambda r: -norm(r) / 2)(peers.rows)
        assert_close(half, closed.direction, 1e-12, size)
        entropy = auto_entropy(peers.rows, peers)
        factor = 2 / norm(peers.rows)
        assert_close(entropy.direction, factor * closed.direction, 1e-12, factor * size)
        assert_close(entropy.self_weight, factor * closed.self_weight, 1e-12)


@given(seeds)
def test_window_rows_get_what_the_whole_sequence_gets(seed):
    rows, peers = scene(seed)
    length = peers.rows.shape[0]
    whole = peers.replace(index=jnp.arange(length), offset=jnp.zeros(length))
    everyone = closed_form(peers.rows, whole)
    window = closed_form(rows, peers)
    expected = jax.tree.map(lambda x: x[peers.index], everyone)
    assert_close(window.direction, expected.direction, 1e-6, _size(window, rows))
    assert_close(window.redundancy, expected.redundancy, 1e-6)


@given(seeds)
def test_padding_never_takes_part(seed):
    rows, peers = scene(seed)
    loud = peers.replace(rows=jnp.where(peers.weight[:, None] > 0, peers.rows, 1e3))
    real = np.asarray(peers.weight[peers.index]) > 0
    for force in (closed_form, auto_collision, auto_entropy):
        quiet = force(rows, peers)
        disturbed = force(rows, loud)
        assert_close(
            disturbed.direction[real], quiet.direction[real], 1e-6, _size(quiet, rows) or 1
        )
        assert_close(quiet.direction[~real], np.zeros_like(quiet.direction[~real]), 1e-6)


def test_equal_rows_feel_no_force():
    rows = jnp.ones((5, 3))
    peers = group(rows)
    for force in (closed_form, auto_collision, functools.partial(forces.autodiff, renyi(0.5))):
        chex.assert_trees_all_close(force(rows, peers).direction, jnp.zeros_like(rows), atol=1e-5)


@given(seeds)
def test_self_term_and_repulsion_add_up(seed):
    """direction = self_weight h - (2/σ²) W H, with W the collision weights."""
    rows, peers = scene(seed)
    force = closed_form(rows, peers)
    pull = 2 / peers.bandwidth**2 * collisions(rows, peers) @ peers.rows
    together = force.self_weight[:, None] * rows - pull
    assert_close(force.direction, together, 2e-6, _size(force, rows))


def test_linear_signal_tends_to_the_exact_one(capsys):
    """For candidates h_i + eps v, the gap and E·g agree to second order; the table shows it."""
    with jax.enable_x64(True):
        random = np.random.default_rng(0)
        rows = jnp.asarray(random.normal(size=(12, 8)))
        peers = group(rows, bandwidth=4.0)
        moves = jnp.asarray(random.normal(size=(50, 8)))
        moves = moves / jnp.linalg.norm(moves, axis=1, keepdims=True)
        gradient = closed_form(rows, peers).direction[0]
        errors = {}
        for eps in (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 4.0, 16.0):
            table = rows[:1] + eps * moves
            gap, redundancy = forces.exact_signal(rows, peers, table)
            linear = eps * moves @ gradient
            errors[eps] = float(jnp.max(jnp.abs(gap[0] - linear)) / jnp.max(jnp.abs(linear)))
            assert float(jnp.max(gap[0])) <= float(redundancy[0]) + 1e-12  # bounded, unlike E·g
        with capsys.disabled():
            print("\n  |move| / sigma   relative error of the linear signal")
            for eps, error in errors.items():
                print(f"  {eps / 4:14.6f}   {error:.2e}")
    assert errors[1e-4] < 1e-4
    assert errors[1e-3] == pytest.approx(10 * errors[1e-4], rel=0.05)
    assert errors[16.0] > 1


@pytest.mark.parametrize("chunk", [3, 7, 50])
def test_exact_signal_does_not_depend_on_its_chunks(monkeypatch, chunk):
    random = np.random.default_rng(1)
    rows = jnp.asarray(random.normal(size=(6, 4)), jnp.float32)
    table = jnp.asarray(random.normal(size=(23, 4)), jnp.float32)
    expected = _exact_by_the_book(np.asarray(rows, float), np.asarray(table, float))
    monkeypatch.setattr(forces, "CHUNK", chunk)
    gap, _ = forces.exact_signal(rows, group(rows), table)
    np.testing.assert_allclose(gap, expected, atol=1e-5)


def _exact_by_the_book(rows, table, sigma=2.0, sigma_attn=5.0):
    gap = np.zeros((len(rows), len(table)))
    for i in range(len(rows)):

        def diversity(h, i=i):
            others = [j for j in range(len(rows)) if j != i]
            near = np.array([np.exp(-((i - j) ** 2) / sigma_attn**2) for j in others])
            alike = np.array([np.exp(-np.sum((h - rows[j]) ** 2) / sigma**2) for j in others])
            return -np.sum(near * alike)

        gap[i] = [diversity(candidate) - diversity(rows[i]) for candidate in table]
    return gap
