"""The conditional distribution, against the enumeration of all texts."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.guidance.compose import chain, draw_tokens, guide, last_word
from tiers import few_quick

TOKENS = ["a", "b", "ab", "ba", "c", None]
"""The toy vocabulary: five texts and an end token. The mask comes after them."""
END, MASK = 5, 6
VOCABULARY = 7


def view_of(tokens, *, start=0, window=None, prompt=0, given=(), infill=False):
    """One view of rows of token ids, in which the mask is open."""
    tokens = jnp.asarray(tokens, jnp.int32)
    rows, length = tokens.shape
    column = jnp.arange(length)[None, :]
    is_open = tokens == MASK
    first = 0 if infill else prompt
    canvas = sj.Canvas(
        tokens=tokens,
        open=is_open,
        prompt=~is_open & ((column < prompt) | jnp.isin(column, jnp.asarray(given or [-1]))),
        attend=jnp.ones_like(is_open),
        positions=jnp.broadcast_to(column, tokens.shape),
        prompt_id=jnp.zeros(rows, jnp.int32),
        sample_id=jnp.arange(rows),
        mask_id=jnp.int32(MASK),
        generation_start=first,
        infill=infill,
    )
    ones = jnp.ones(rows)
    return sj.View(
        canvas=canvas,
        window_start=jnp.int32(first + start),
        time=ones,
        next_time=0.5 * ones,
        progress=0 * ones,
        quota=jnp.ones(rows, jnp.int32),
        width=length - first - start if window is None else window,
    )


def context(view, logits):
    """A context whose head gives these logits of the window."""
    zeros = jnp.zeros((*view.tokens.shape, 1))
    return sj.core.Context(
        view=view,
        features=zeros,
        tables=sj.core.Tables(jnp.zeros((VOCABULARY, 1)), jnp.zeros((VOCABULARY, 1))),
        head=lambda rows: logits,
        read=lambda other, cache: (zeros, cache),
        log_q=lambda logits: logits,
        fold=False,
    )


def logits_of(view, seed=0, scale=2.0):
    shape = (view.tokens.shape[0], view.width, VOCABULARY)
    return scale * jax.random.normal(jax.random.key(seed), shape)


def text_of(ids):
    """The text before the first end token; None if something stands after it."""
    ids = list(ids)
    at = ids.index(END) if END in ids else len(ids)
    if any(i != END for i in ids[at:]) or MASK in ids:
        return None
    return "".join(TOKENS[i] or "" for i in ids[:at])


def enumerate_texts(expression, row, logits, first, window, ends=True):
    """{tokens of the text's columns: weight} by trying all of them; outside the window, one text
    that matches counts like many."""
    choices = [range(VOCABULARY) if t == MASK else [t] for t in row]
    log_p = jax.nn.log_softmax(logits.astype(float))
    found = {}
    for ids in itertools.product(*choices):
        text = text_of(ids)
        if text is None or not re.fullmatch(expression, text) or (END in ids and not ends):
            continue
        inside = tuple(ids[first : first + window])
        open_here = [at for at in range(window) if row[first + at] == MASK]
        found[inside] = sum(float(log_p[at, inside[at]]) for at in open_here)
    weight = np.exp(np.array(list(found.values())))
    return dict(zip(found, weight / weight.sum(), strict=True))


def marginals(texts, width):
    table = np.zeros((width, VOCABULARY))
    for ids, p in texts.items():
        for at, token in enumerate(ids):
            table[at, token] += p
    return table


@jax.jit
def guided_by(guidance, view, logits):
    ctx = context(view, logits)
    composed = chain(guidance)
    return guide(composed, composed.init(ctx), ctx).logits


@jax.jit
def drawn_by(guidance, view, logits, key):
    ctx = context(view, logits)
    composed = chain(guidance)
    guided = guide(composed, composed.init(ctx), ctx)
    log_q = last_word(composed, guided, guided.logits, ctx)
    noise = jax.random.gumbel(key, log_q.shape, mode="high")
    return draw_tokens(composed, guided, log_q, noise, ctx)


M = MASK
SCENES = {
    "some written": (r"a*b(c|a)*", [M, 1, M, M], 0, 4),
    "all open": (r"(ab|c)*", [M, M, M, M], 0, 4),
    "the window begins later": (r"(ab|ba)*c?", [2, M, M, M], 1, 3),
    "open before and after the window": (r"(abc)*", [M, M, M, M], 1, 2),
    "empty text": (r"", [M, M, M, M], 0, 4),
    "two ways to write it": (r"abab|cc", [M, M, M, M], 0, 4),
    "exact length": (r"(?:[abc]{2}){2}", [M, M, M, M], 0, 4),
    "ended": (r"a?b?c?", [0, M, 5, M], 0, 4),
}


@pytest.mark.parametrize("scene", few_quick(SCENES, 3))
def test_marginals_are_those_of_all_texts_that_match(scene):
    expression, row, start, window = SCENES[scene]
    guidance = sj.matches(expression, TOKENS, ends=[END])
    view = view_of([row], start=start, window=window)
    logits = logits_of(view)
    found = jax.nn.softmax(guided_by(guidance, view, logits))[0]
    wanted = marginals(enumerate_texts(expression, row, logits[0], start, window), window)
    free = np.array([row[start + at] == MASK for at in range(window)])
    np.testing.assert_allclose(found[free], wanted[free], atol=2e-6)


@pytest.mark.parametrize("scene", few_quick([s for s in SCENES if "before" not in s], 1))
def test_joint_draws_follow_the_joint_distribution(scene):
    """20,000 rows of the same logits, with noise of one seed; 5 standard deviations."""
    expression, row, start, window = SCENES[scene]
    guidance, rows = sj.matches(expression, TOKENS, ends=[END]), 20_000
    view = view_of([row], start=start, window=window)
    logits = logits_of(view)
    texts = enumerate_texts(expression, row, logits[0], start, window)
    many = jax.tree.map(lambda x: jnp.repeat(x, rows, axis=0) if x.ndim else x, view)
    drawn = drawn_by(guidance, many, jnp.repeat(logits, rows, axis=0), jax.random.key(1))
    written = many.window(many.tokens)
    drawn = np.where(written == MASK, drawn, written)
    counts = dict.fromkeys(texts, 0)
    for ids in drawn.tolist():
        counts[tuple(ids)] += 1  # a text that does not match is a KeyError
    for ids, p in texts.items():
        assert abs(counts[ids] / rows - p) <= 5 * np.sqrt(p * (1 - p) / rows) + 1 / rows, ids


@pytest.mark.slow
def test_columns_that_are_open_before_the_window_leave_a_text_that_matches():
    """The likeliest state they may lead to is taken; no plan of ours leaves columns open."""
    expression, row, start, window = SCENES["open before and after the window"]
    guidance = sj.matches(expression, TOKENS, ends=[END])
    view = view_of([row] * 200, start=start, window=window)
    logits = jnp.repeat(logits_of(view)[:1], 200, axis=0)
    texts = enumerate_texts(expression, row, logits[0], start, window)
    drawn = np.asarray(drawn_by(guidance, view, logits, jax.random.key(1))).tolist()
    assert {tuple(ids) for ids in drawn} <= set(texts)


def test_an_unlikely_text_is_still_there():
    """All that matches has a chance of about exp(-3,000): no number of float32 is that small."""
    view = view_of([[M] * 8])
    logits = jnp.zeros((1, 8, VOCABULARY)).at[:, :, 2].set(400.0)
    found = jax.nn.softmax(guided_by(sj.matches("(?:ca|cb){4}", TOKENS), view, logits))[0]
    np.testing.assert_allclose(found[::2, 4], 1, atol=1e-6)
    np.testing.assert_allclose(found[1::2, :2], 0.5, atol=1e-3)


@pytest.mark.slow
def test_where_filters_leave_nothing_the_rest_is_drawn_from_what_they_were_given():
    """Before the form, what they cut counts alike; after it, the marginals are what counts."""
    view = view_of([[M] * 3] * 20_000)
    logits = jnp.repeat(logits_of(view)[:1], 20_000, axis=0)
    form = sj.matches("ca|cb|b", TOKENS, ends=[END])
    cut = sj.forbid([0, 1, 2, 3, 4])
    ids = np.asarray(drawn_by(sj.chain(cut, form), view, logits, jax.random.key(0)))
    seen = {text_of(row) for row in ids.tolist()}
    assert seen == {"b"}  # the fewest tokens that were cut
    ids = np.asarray(drawn_by(sj.chain(form, cut), view, logits, jax.random.key(0)))
    assert {text_of(row) for row in ids.tolist()} <= {"ca", "cb", "b"}


def test_greedy_is_the_likeliest_column_by_column():
    row = [M, M, M]
    view = view_of([row])
    logits = logits_of(view, seed=5)
    guidance = sj.matches("(ab|c|ba)*", TOKENS, ends=[END])

    @jax.jit
    def draw_greedily(view, logits):
        ctx = context(view, logits)
        composed = chain(guidance)
        guided = guide(composed, composed.init(ctx), ctx)
        cold = sj.temperature(0.0).apply(guided.logits, None, (), ctx)[0]
        return draw_tokens(composed, guided, cold, jnp.zeros_like(cold), ctx)

    drawn = draw_greedily(view, logits)[0].tolist()
    texts = enumerate_texts("(ab|c|ba)*", row, logits[0], 0, 3)
    assert tuple(drawn) in texts
    assert drawn[0] == int(np.argmax(marginals(texts, 3)[0]))
