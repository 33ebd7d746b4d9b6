"""SAKE's options: what each changes, against a by-the-book computation in float64."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.core import LOWEST
from sake_jax.guidance.compose import guide
from sake_jax.guidance.kernels import median
from sake_jax.testing import outcome, toy_context, toy_params, toy_view

PARAMS, VIEW = toy_params(0), toy_view(0)
CTX = toy_context(PARAMS, VIEW)
OPEN = np.asarray(CTX.open)
START = int(VIEW.window_start)


def signal(guidance, params=PARAMS, view=VIEW):
    """What the guidance adds to the logits at open positions."""
    guided, base = outcome(guidance, params, view)
    return np.asarray(guided - base)[OPEN]


def rows_by_the_book(source, table):
    """H (B, L, D) and who takes part, in float64."""
    tokens, is_open = np.asarray(VIEW.tokens), np.asarray(VIEW.open)
    valid = np.asarray(VIEW.attend).copy()
    if source == "hidden":
        return np.asarray(CTX.features, np.float64), valid
    if source == "input":
        return np.asarray(PARAMS["input"], np.float64)[tokens], valid
    embedding = np.asarray(PARAMS[table], np.float64)
    rows = embedding[tokens]
    logits = np.asarray(CTX.head(CTX.rows), np.float64)
    for b, c in itertools.product(range(rows.shape[0]), range(START, rows.shape[1])):
        if is_open[b, c] and valid[b, c]:
            z = logits[b, c - START]
            p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            rows[b, c] = p @ embedding if source == "expected" else embedding[z.argmax()]
    return rows, valid


def psi_by_the_book(source, table, self_term, sigma=2.5, sigma_attn=4.0):
    rows, valid = rows_by_the_book(source, table)
    embedding = np.asarray(PARAMS[table], np.float64)
    batch, length, _ = rows.shape
    psi = np.zeros((batch, length, embedding.shape[0]))
    for b, i in itertools.product(range(batch), range(length)):
        g = np.zeros(rows.shape[-1])
        for j in range(length):
            if j != i and valid[b, i] and valid[b, j]:
                near = np.exp(-((i - j) ** 2) / sigma_attn**2)
                alike = np.exp(-np.sum((rows[b, i] - rows[b, j]) ** 2) / sigma**2)
                g += 2 / sigma**2 * near * alike * (self_term * rows[b, i] - rows[b, j])
        psi[b, i] = embedding @ g
    return psi[:, START:][OPEN]


@pytest.mark.parametrize("gradient", ["autodiff", "closed_form"])
@pytest.mark.parametrize("self_term", [1.0, 0.0, 0.3])
@pytest.mark.parametrize("table", ["input", "output"])
@pytest.mark.parametrize("source", ["hidden", "expected", "predicted", "input"])
def test_sources_tables_and_terms(source, table, self_term, gradient):
    guidance = sj.sake(
        0.7,
        bandwidth=2.5,
        attention_bandwidth=4.0,
        source=source,
        table=table,
        self_term=self_term,
        gradient=gradient,
        normalize="none",
    )
    expected = 0.7 * psi_by_the_book(source, table, self_term)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(signal(guidance), expected, atol=2e-4)


def test_paper_sake_is_the_literal_reading():
    expected = 1.3 * psi_by_the_book("hidden", "input", 1.0)
    np.testing.assert_allclose(signal(sj.paper_sake(1.3, 2.5, 4.0)), expected, atol=2e-4)


@pytest.mark.parametrize("source", ["hidden", "predicted"])
def test_exact_signal(source):
    rows, valid = rows_by_the_book(source, "output")
    embedding = np.asarray(PARAMS["output"], np.float64)
    batch, length, _ = rows.shape
    psi = np.zeros((batch, length, embedding.shape[0]))
    for b, i in itertools.product(range(batch), range(length)):
        for j in range(length):
            if j != i and valid[b, i] and valid[b, j]:
                near = np.exp(-((i - j) ** 2) / 4.0**2)
                here = np.exp(-np.sum((rows[b, i] - rows[b, j]) ** 2) / 2.5**2)
                there = np.exp(-np.sum((embedding - rows[b, j]) ** 2, axis=1) / 2.5**2)
                psi[b, i] += near * (here - there)
    guidance = sj.sake(
        2.0,
        bandwidth=2.5,
        attention_bandwidth=4.0,
        gradient="exact",
        source=source,
        normalize="none",
    )
    np.testing.assert_allclose(signal(guidance), 2 * psi[:, START:][OPEN], atol=1e-4)


@pytest.mark.parametrize("gradient", ["autodiff", "closed_form", "exact"])
def test_rms_gives_unit_size_over_the_open_positions_of_a_row(gradient):
    guidance = sj.sake(1.0, gradient=gradient, source="predicted", bandwidth=3.0)
    guided, base = outcome(guidance, PARAMS, VIEW)
    moved = np.asarray(guided - base)
    moved = moved - moved.mean(axis=-1, keepdims=True)
    for row in range(moved.shape[0]):
        size = np.sqrt(np.mean(moved[row][OPEN[row]] ** 2))
        assert size == pytest.approx(1.0, abs=2e-3)


def test_rms_leaves_a_diverse_sequence_alone():
    """The signal keeps its unit size while rows overlap and fades as they part."""
    sizes = []
    for apart in (1.0, 4.0, 8.0, 20.0):
        features = apart * jax.random.normal(jax.random.key(0), CTX.features.shape)
        ctx = toy_context(PARAMS, VIEW, features=features)
        composed = sj.chain(sj.sake(1.0, bandwidth=2.5))
        guided = guide(composed, composed.init(ctx), ctx)
        sizes.append(float(jnp.abs(guided.logits - ctx.head(ctx.rows)).max()))
    assert sizes[0] > 1
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 1e-3


def test_rms_does_not_blow_up_rounding_between_equal_rows():
    """Samples that have not parted yet differ by rounding only: nothing to push along."""
    view = jax.tree.map(lambda x: x[jnp.array([0, 0, 2, 2])] if x.ndim else x, VIEW)
    dust = 1e-6 * jax.random.normal(jax.random.key(0), CTX.features.shape)
    same = CTX.features[jnp.array([0, 0, 2, 2])] + dust
    ctx = toy_context(PARAMS, view, features=same)
    composed = sj.chain(sj.sake(1.0, scope="batch"))
    guided = guide(composed, composed.init(ctx), ctx)
    assert float(jnp.abs(guided.logits - ctx.head(ctx.rows)).max()) < 0.05


def test_rms_does_not_blow_up_the_rounding_of_an_exact_signal():
    """Candidates too far away to matter: the gap is constant up to rounding, and stays small."""
    params = PARAMS | {"output": PARAMS["output"] * 1e3, "bias": jnp.zeros(17)}
    close = 0.01 * CTX.features
    ctx = toy_context(params, VIEW, features=close)
    composed = sj.chain(sj.sake(1.0, gradient="exact"))
    guided = guide(composed, composed.init(ctx), ctx)
    assert float(jnp.abs(guided.logits - ctx.head(ctx.rows)).max()) < 0.05


def test_median_bandwidth_is_the_median_distance():
    """sake with "median" equals sake with that number, row by row."""
    rows, valid = rows_by_the_book("hidden", "output")
    sigmas = []
    for b in range(rows.shape[0]):
        pairs = [
            np.sum((rows[b, i] - rows[b, j]) ** 2)
            for i in range(START, rows.shape[1])
            for j in range(rows.shape[1])
            if i != j and valid[b, i] and valid[b, j]
        ]
        sigmas.append(np.sqrt(np.sort(pairs)[(len(pairs) - 1) // 2]))
    by_number = signal(sj.sake(1.0, bandwidth=jnp.asarray(sigmas, jnp.float32)))
    np.testing.assert_allclose(signal(sj.sake(1.0, bandwidth="median")), by_number, atol=1e-3)
    own = signal(sj.sake(1.0, bandwidth=median))  # a heuristic of one's own is a function
    np.testing.assert_allclose(own, by_number, atol=1e-3)
    assert not np.allclose(signal(sj.sake(1.0, bandwidth="mean")), by_number, atol=1e-2)


def batch_by_the_book(sigma=2.5):
    """Repulsion between the two samples of a prompt at the same position."""
    rows, valid = rows_by_the_book("hidden", "output")
    embedding = np.asarray(PARAMS["output"], np.float64)
    psi = np.zeros((*rows.shape[:2], embedding.shape[0]))
    for b, i in itertools.product(range(rows.shape[0]), range(rows.shape[1])):
        twin = b ^ 1
        if valid[b, i] and valid[twin, i]:
            apart = rows[b, i] - rows[twin, i]
            g = 2 / sigma**2 * np.exp(-np.sum(apart**2) / sigma**2) * apart
            psi[b, i] = embedding @ g
    return psi[:, START:][OPEN]


def test_scopes():
    options = dict(bandwidth=2.5, attention_bandwidth=4.0, normalize="none")
    sequence = psi_by_the_book("hidden", "output", 1.0)
    across = batch_by_the_book()
    assert np.abs(across).max() > 0.1
    alone = dict(bandwidth=2.5, normalize="none")
    np.testing.assert_allclose(signal(sj.sake(1.0, scope="batch", **alone)), across, atol=2e-4)
    both = signal(sj.sake(1.0, scope="both", **options))
    np.testing.assert_allclose(both, sequence + across, atol=2e-4)


def test_prompts_never_see_each_other():
    """With scope="batch", the rows of one prompt do not change when another's do."""
    guidance = sj.sake(1.0, scope="both")
    one, _ = outcome(guidance, PARAMS, VIEW)
    other = VIEW.replace(tokens=VIEW.tokens.at[2:].set(3))
    two, _ = outcome(guidance, PARAMS, other)
    np.testing.assert_allclose(one[:2], two[:2], atol=1e-5)
    assert not np.allclose(one[2:], two[2:], atol=1e-2)


def test_strength_may_be_a_schedule():
    half = signal(sj.sake(sj.schedule(_half_of_progress)))
    number = signal(sj.sake(0.5 * float(VIEW.progress[0])))
    np.testing.assert_allclose(half, number, atol=1e-5)


def _half_of_progress(progress):
    return 0.5 * progress


def test_folded_projected_and_recorded_forms_agree():
    """W (h + γ g), [W h, γ W g] and the recorded form give the same logits."""
    folded = toy_context(PARAMS, VIEW)
    recorded = toy_context(PARAMS, VIEW, record="signal")
    bent = toy_context(PARAMS, VIEW, affine=False)  # the head may not be used for the push
    results = []
    for ctx in (folded, recorded, bent):
        composed = sj.chain(sj.sake(1.2), sj.top_p(0.9), sj.sake(0.4, self_term=0.0))
        results.append(np.asarray(guide(composed, composed.init(ctx), ctx).logits))
    np.testing.assert_allclose(results[0], results[1], atol=1e-4)
    np.testing.assert_allclose(results[0], results[2], atol=1e-4)


def test_folding_evaluates_the_head_on_the_window_alone():
    seen = []

    def head(rows):
        seen.append(rows.shape[1])
        return CTX.head(rows)

    def rows_through_the_head(guidance, **changes):
        seen.clear()
        ctx = toy_context(PARAMS, VIEW, head=head, **changes)
        composed = sj.chain(guidance)
        guide(composed, composed.init(ctx), ctx)
        return list(seen)

    window = VIEW.width
    assert rows_through_the_head(sj.sake(1.0)) == [window]
    assert rows_through_the_head(sj.chain(sj.classifier_free(1.0), sj.sake(1.0))) == [window]
    assert rows_through_the_head(sj.when(sj.sake(1.0), end=0.5)) == [window]
    assert rows_through_the_head(sj.chain(sj.sake(1.0), sj.top_p(0.9))) == [window]
    assert rows_through_the_head(sj.chain(sj.top_p(0.9), sj.sake(1.0))) == [2 * window]
    assert rows_through_the_head(sj.sake(1.0, kl_budget=0.1)) == [2 * window]
    assert rows_through_the_head(sj.sake(1.0), record="signal") == [2 * window]
    assert rows_through_the_head(sj.sake(1.0, table="input")) == [window]


def test_trust_region():
    """chain(top_p, sake): what top_p cut stays cut, however strong the push."""
    cut, _ = outcome(sj.top_p(0.8), PARAMS, VIEW)
    both, _ = outcome(sj.chain(sj.top_p(0.8), sj.sake(20.0)), PARAMS, VIEW)
    gone = np.asarray(cut) <= LOWEST
    assert gone.any()
    assert (np.asarray(both)[gone] <= 0.99 * LOWEST).all()


def test_an_objective_of_ones_own():
    def outward(rows, peers):
        return 0.5 * jnp.sum(jnp.square(rows))

    features = np.asarray(CTX.rows, np.float64)
    expected = (features @ np.asarray(PARAMS["output"], np.float64).T)[OPEN]
    actual = signal(sj.diversity(outward, 1.0, normalize="none"))
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_recorded_signal_is_proposition_1():
    ctx = toy_context(PARAMS, VIEW, record="signal")
    composed = sj.chain(sj.sake(0.8))
    guided = guide(composed, composed.init(ctx), ctx)
    (recorded,) = guided.reports
    base = np.asarray(guided.base, np.float64)
    psi = np.asarray(guided.logits, np.float64) - base
    p = np.asarray(jax.nn.softmax(guided.base), np.float64)
    for row in range(base.shape[0]):
        values = []
        for i in np.flatnonzero(OPEN[row]):
            mean_z, mean_psi = p[row, i] @ base[row, i], p[row, i] @ psi[row, i]
            values.append(p[row, i] @ ((base[row, i] - mean_z) * (psi[row, i] - mean_psi)))
        assert float(recorded.covariance[row]) == pytest.approx(np.mean(values), abs=1e-3)
        centred = psi[row] - psi[row].mean(axis=-1, keepdims=True)
        size = np.sqrt(np.mean(centred[OPEN[row]] ** 2))
        assert float(recorded.rms[row]) == pytest.approx(size, rel=1e-3)
    assert bool(jnp.all(jnp.abs(recorded.correlation) <= 1))
    assert bool(jnp.all(recorded.redundancy > 0))
