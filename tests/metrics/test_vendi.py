"""Vendi and RKE by hand, and against vendi-score."""

import math

import numpy as np
import pytest

from sake_jax.metrics.vendi import rke, vendi

ORDERS = [0.5, 1, 2, 3.5, math.inf]


@pytest.mark.parametrize("order", ORDERS)
def test_kinds_are_counted(order):
    assert vendi(similarity=np.eye(5), order=order) == pytest.approx(5)
    assert vendi(similarity=np.ones((5, 5)), order=order) == pytest.approx(1)
    assert vendi(np.repeat(np.eye(3), 4, axis=0), order=order) == pytest.approx(3)


def test_low_orders_do_not_count_rounding_as_kinds():
    rows = np.random.default_rng(3).normal(size=(2, 6))[[0, 1] * 20]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert vendi(similarity=unit @ unit.T, order=0.01) == pytest.approx(2, abs=0.01)


@pytest.mark.parametrize("order", ORDERS)
def test_two_samples_of_a_given_cosine(order):
    cosine = 0.6  # eigenvalues (1 +- cosine) / 2
    p = np.asarray([0.8, 0.2])
    expected = {
        1: math.exp(-np.sum(p * np.log(p))),
        math.inf: 1 / 0.8,
    }.get(order) or np.sum(p**order) ** (1 / (1 - order))
    assert vendi([[1.0, 0.0], [cosine, 0.8]], order=order) == pytest.approx(expected)
    matrix = [[1, cosine], [cosine, 1]]
    assert vendi(similarity=matrix, order=order) == pytest.approx(expected)


def test_rke_is_the_logarithm_of_order_2():
    random = np.random.default_rng(0)
    for shape in [(6, 3), (3, 6)]:
        rows = random.normal(size=shape)
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        values = np.linalg.eigvalsh(unit @ unit.T / len(unit))
        assert rke(rows) == pytest.approx(-math.log(np.sum(values**2)))
        assert math.exp(rke(rows)) == vendi(rows, order=2)
        assert rke(similarity=unit @ unit.T) == pytest.approx(rke(rows))


@pytest.mark.parametrize("shape", [(12, 4), (4, 12)])
@pytest.mark.parametrize("order", ORDERS)
def test_features_and_their_cosines_agree(shape, order):
    rows = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found = vendi(3 * rows, order=order)
    assert found == pytest.approx(vendi(similarity=unit @ unit.T, order=order), rel=1e-3)


@pytest.mark.parametrize("order", [0.5, 1, 2, 3.5, math.inf])
def test_equals_vendi_score(order):
    theirs = pytest.importorskip("vendi_score.vendi")
    their_order = "inf" if order == math.inf else order
    random = np.random.default_rng(2)
    for samples in (2, 5, 9):
        rows = random.normal(size=(samples, 16))
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        expected = theirs.score_K(unit @ unit.T, q=their_order)
        # Their score of features takes no order but 1.
        assert vendi(rows, order=order) == pytest.approx(expected, abs=1e-8)
        assert vendi(similarity=unit @ unit.T, order=order) == pytest.approx(expected, abs=1e-8)
        if order == 1:
            assert vendi(rows) == pytest.approx(theirs.score_dual(rows), abs=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "leave the other out"),
        ({"features": np.eye(2), "similarity": np.eye(2)}, "leave the other out"),
        ({"features": np.ones(3)}, "must be \\(N, D\\)"),
        ({"features": [[1.0, math.nan]]}, "finite"),
        ({"features": [[1.0, 0.0], [0.0, 0.0]]}, "row of zeros"),
        ({"similarity": np.ones((2, 3))}, "must be \\(N, N\\)"),
        ({"similarity": [[1, 0.5], [0.4, 1]]}, "symmetric"),
        ({"similarity": [[2, 0], [0, 1]]}, "ones on its diagonal"),
        ({"features": np.eye(2), "order": 0}, "above 0"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        vendi(**arguments)
