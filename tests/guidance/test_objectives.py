"""Density matrices, entropies of every order, and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from sake_jax.guidance import forces
from sake_jax.guidance.kernels import density, mean, median, vanishing
from sake_jax.guidance.objectives import collision, log_determinant, renyi, von_neumann
from scenes import assert_close, group, scene, seeds


@given(seeds)
def test_density_is_a_density_matrix(seed):
    with jax.enable_x64(True):
        rho = jax.jit(density)(*scene(seed, jnp.float64))
        np.testing.assert_allclose(rho, rho.T, atol=1e-15)
        assert float(jnp.trace(rho)) == pytest.approx(1)
        assert float(jnp.linalg.eigvalsh(rho).min()) > -1e-12


@given(seeds)
def test_entropies_agree_with_the_eigenvalues(seed):
    with jax.enable_x64(True):
        rows, peers = scene(seed, jnp.float64)
        eigenvalues = np.linalg.eigvalsh(np.asarray(density(rows, peers)))
        eigenvalues = eigenvalues[eigenvalues > 1e-12]
        for order in (2, 3, 2.5):
            expected = np.log(np.sum(eigenvalues**order)) / (1 - order)
            assert float(jax.jit(renyi(order))(rows, peers)) == pytest.approx(expected, abs=1e-9)
        shannon = -np.sum(eigenvalues * np.log(eigenvalues))
        assert float(von_neumann(rows, peers)) == pytest.approx(shannon, abs=2e-2)


@pytest.mark.parametrize("objective", [renyi(3), renyi(0.5), von_neumann, log_determinant()])
def test_slopes_of_slopes(objective):
    """Hessian times a direction, by differences of gradients; finite where rows are equal."""
    with jax.enable_x64(True):
        rows, peers = scene(2, jnp.float64)
        slope = jax.jit(jax.grad(objective))
        direction = jnp.sin(jnp.arange(rows.size, dtype=rows.dtype)).reshape(rows.shape)
        _, bent = jax.jvp(lambda x: slope(x, peers), (rows,), (direction,))
        near = 1e-6
        step = slope(rows + near * direction, peers) - slope(rows - near * direction, peers)
        np.testing.assert_allclose(bent, step / (2 * near), atol=1e-4 * float(jnp.abs(bent).max()))
        equal = jnp.broadcast_to(rows[:1], rows.shape)
        assert np.isfinite(jax.jvp(lambda x: slope(x, peers), (equal,), (direction,))[1]).all()


def test_orders_are_monotone_and_meet_at_one():
    rows, peers = scene(5)
    values = [float(renyi(order)(rows, peers)) for order in (0.5, 0.9, 1.0, 1.1, 2.0, 4.0)]
    assert values == sorted(values, reverse=True)
    assert renyi(1) is von_neumann
    assert values[1] - values[3] < 0.2


@pytest.mark.parametrize(
    "objective", [collision, renyi(2), renyi(3), renyi(1.5), von_neumann, log_determinant(0.01)]
)
def test_derivatives_by_finite_differences(objective):
    """`collision` counts the pairs of the window's rows with constants, so one row at a time."""
    with jax.enable_x64(True):
        rows = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)))
        peers = group(rows).replace(index=jnp.array([2]), offset=jnp.zeros(1))
        row = rows[2:3]
        gradient = forces.autodiff(objective, row, peers).direction
        step = 1e-5
        for axis in range(4):
            up, down = row.at[0, axis].add(step), row.at[0, axis].add(-step)
            slope = (objective(up, peers) - objective(down, peers)) / (2 * step)
            assert float(gradient[0, axis]) == pytest.approx(float(slope), abs=1e-7)


@pytest.mark.parametrize(
    "objective", [renyi(0.5), renyi(2), renyi(3), von_neumann, log_determinant(0.01)]
)
def test_derivatives_stay_finite_on_equal_rows(objective):
    rows = jnp.ones((5, 3)).at[4].set(2.0)  # four equal rows: eigenvalues coincide
    force = forces.autodiff(objective, rows, group(rows))
    assert bool(jnp.all(jnp.isfinite(force.direction)))
    assert float(jnp.abs(force.direction[4]).max()) > 0


@pytest.mark.parametrize("objective", [collision, renyi(2), von_neumann, log_determinant(0.01)])
def test_moving_along_the_force_raises_the_objective(objective):
    rows = jnp.asarray(np.random.default_rng(3).normal(size=(8, 4)), jnp.float32)
    peers = group(rows)
    direction = forces.autodiff(objective, rows, peers).direction
    moved = rows + 1e-2 * direction / jnp.linalg.norm(direction)
    assert float(objective(moved, peers.replace(rows=moved))) > float(objective(rows, peers))


def test_self_weight_is_the_sum_of_the_pair_weights():
    """direction_i = Σ_j w_ij (h_i - h_j) for every kernel objective, self_weight_i = Σ_j w_ij."""
    rows = jnp.asarray(np.random.default_rng(4).normal(size=(5, 3)), jnp.float32)
    for objective in (collision, renyi(2), von_neumann):
        force = forces.autodiff(objective, rows, group(rows))
        assert_close(force.self_weight, _pair_weights(objective, rows).sum(axis=1), 1e-3)


def _pair_weights(objective, rows):
    """w_ij, read off the force along a new coordinate in which row j alone differs a little."""
    count, little = rows.shape[0], 1e-3
    weights = np.zeros((count, count))
    for j in range(count):
        extra = jnp.zeros((count, 1)).at[j].set(little)
        lifted = jnp.concatenate([rows, extra], axis=1)
        direction = forces.autodiff(objective, lifted, group(lifted)).direction
        weights[:, j] = -np.asarray(direction[:, -1]) / little
    np.fill_diagonal(weights, 0)
    return weights


def test_median_and_mean_leave_out_pairs_of_no_weight():
    distances = jnp.array([[0.0, 1.0, 4.0], [1.0, 0.0, 9.0]])
    weights = jnp.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    assert float(median(distances, weights)) == 1.0
    assert float(mean(distances, weights)) == pytest.approx(15 / 4)
    nothing = jnp.zeros_like(weights)
    assert float(median(distances, nothing)) == float(mean(distances, nothing)) == 1.0


def test_vanishing_distance_is_the_papers():
    """At eps = 0.01 attention vanishes at about 3.03 bandwidths."""
    assert 1 / float(vanishing(1.0, 0.01)) == pytest.approx(3.03, abs=0.01)
