"""A network of one's own, through everything that takes a model."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from letters import END, LETTERS, MASK, Letters, LinenNet, Net, V, logits, make_params, rows, tables
from sake_jax.evaluate.run import run as evaluate
from sake_jax.evaluate.task import Problem, Task, Verdict
from sake_jax.testing import check_denoiser

KEY = jax.random.key(1)
FACTS = {"mask_id": MASK, "eos_id": END, "pad_id": END, "tokenizer": Letters(), "name": "letters"}
FACTS |= {"predicts_mask": False}


@pytest.fixture(scope="module")
def lm():
    return sj.wrap(rows, make_params(), tables=tables, context=64, **FACTS)


def sampler_of(lm, **options):
    defaults = {"length": 6, "guidance": sj.sake(1.0), "draw": sj.temperature(0.9)}
    ends = "free" if lm.config.eos_id is None else "never"
    return sj.masked(lm, **defaults | options, ends=ends, reveal=sj.reveal.leftmost)


@pytest.fixture(scope="module")
def whole(lm):
    sampler = sampler_of(lm, record="full")
    return sj.generate(lm, sampler, ["abc", "d"], samples=2, key=KEY, trajectory=True)


def wrapped(style):
    params = make_params()
    if style == "nnx":
        of = lambda m: (m.embed, m.out, m.bias)  # noqa: E731
        return sj.wrap(Net(params), read=Net.hidden, tables=of, **FACTS)
    if style == "linen":
        of = lambda m: tables(m.weights)  # noqa: E731
        return sj.wrap(LinenNet(), {"params": params}, read=LinenNet.hidden, tables=of, **FACTS)
    if style == "own head":
        head = lambda p, rows: rows @ p["out"].T + p["bias"][None, None]  # noqa: E731
        return sj.wrap(rows, params, tables=tables, head=head, affine=True, **FACTS)
    return sj.wrap(rows, params, tables=sj_tables, **FACTS)


def sj_tables(params):
    return sj.Tables(*tables(params))


@pytest.mark.parametrize("style", ["nnx", "linen", "own head", "tables"])
def test_every_style_writes_the_same_tokens(lm, whole, style):
    mine = wrapped(style)
    out = sj.generate(mine, sampler_of(mine), ["abc", "d"], samples=2, key=KEY)
    np.testing.assert_array_equal(out.tokens, whole.tokens)
    np.testing.assert_allclose(
        mine.logits([[1, 2, MASK]]), lm.logits([[1, 2, MASK]]), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("style", ["function", "nnx"])
def test_logits_alone_are_rows_too(style):
    params = make_params()
    model = (logits, params) if style == "function" else (Net(params),)
    lm = sj.wrap(*model, **FACTS)
    assert lm.config.network.V == lm.config.network.D == V
    out = sj.generate(lm, sampler_of(lm), ["abc"], samples=2, key=KEY)
    assert (out.tokens < END).all()
    plain = sj.generate(lm, sampler_of(lm, guidance=None), ["abc"], samples=2, key=KEY)
    bare = sj.wrap(rows, params, tables=tables, **FACTS)
    same = sj.generate(bare, sampler_of(bare, guidance=None), ["abc"], samples=2, key=KEY)
    np.testing.assert_array_equal(plain.tokens, same.tokens)
    check_denoiser(lm)


def test_texts_stop_strings_and_printing(lm, whole):
    text = whole.texts[0][0]
    assert set(text) <= set(LETTERS)
    assert len(text) == 6
    cut = sj.generate(lm, sampler_of(lm), ["abc"], samples=2, key=KEY, stop=[text[2]])
    assert cut.texts[0][0] == text[: text.index(text[2])]
    assert cut.ended[0][0] == "string"
    assert repr(whole) == f"Generation(2 prompts, 2 samples of each, first: {text!r})"
    assert re.fullmatch(r"OwnModel\(letters: V=\d+, D=\d+, [\d,]+ parameters\)", repr(lm))


def test_without_a_tokenizer_token_ids_work():
    lm = sj.wrap(rows, make_params(), tables=tables, mask_id=MASK)
    out = sj.generate(lm, sampler_of(lm), [[1]], key=KEY)
    assert out.texts == [[None]]
    assert "first: [" in repr(out)
    with pytest.raises(ValueError, match="needs a tokenizer for texts"):
        sj.generate(lm, sampler_of(lm), ["abc"], key=KEY)
    with pytest.raises(ValueError, match="streaming texts needs a tokenizer"):
        sj.stream_text(lm, sampler_of(lm), [1, 2], key=KEY)


def test_save_resume_and_replay(lm, whole, tmp_path):
    sampler = sampler_of(lm)
    out = sj.generate(lm, sampler, ["abc", "d"], samples=2, key=KEY, save=tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert saved["sampler"]["fields"]["denoiser"] == {"own": "letters"}
    again = sj.replay(tmp_path / "run", lm)
    np.testing.assert_array_equal(again.tokens, out.tokens)
    with pytest.raises(ValueError, match="pass lm=, as it was wrapped"):
        sj.replay(tmp_path / "run")
    other = sj.wrap(rows, make_params(1), tables=tables, context=64, **FACTS)
    with pytest.raises(ValueError, match="must be the one that was saved"):
        sj.replay(tmp_path / "run", other)
    named = sj.wrap(rows, make_params(), tables=tables, context=64, **FACTS | {"name": "b"})
    with pytest.raises(ValueError, match="must be the one that was saved"):
        sj.replay(tmp_path / "run", named)


def test_the_viewer_shows_it(whole):
    page = whole.to_html()
    assert "abc" in page


def test_streams(lm, whole):
    canvas = sj.canvas([[0, 1, 2]], 6, mask_id=MASK)
    *_, (last, _) = sj.stream(sampler_of(lm), lm.params, KEY, canvas, chunk=3)
    np.testing.assert_array_equal(last.tokens[0, 3:], whole.tokens[0, 0])
    seen = list(sj.stream_text(lm, sampler_of(lm), "abc", key=KEY, every=2, hole="?"))
    assert [text.count("?") for text in seen] == [4, 2, 0]
    assert seen[-1] == whole.texts[0][0]
    assert seen[0][:2] == seen[-1][:2]
    stop = seen[-1][3]
    *_, last = sj.stream_text(lm, sampler_of(lm), "abc", key=KEY, stop=[stop])
    assert last == seen[-1][: seen[-1].index(stop)]
    with pytest.raises(ValueError, match="every must be at least 1"):
        sj.stream_text(lm, sampler_of(lm), "abc", key=KEY, every=0)


def test_a_task_takes_it(lm, tmp_path):
    task = Task(
        name="letters",
        problems=(Problem("one", "abc", {}), Problem("two", "d", {})),
        judge=lambda pairs: [Verdict({}, {}, "") for _ in pairs],
        stop=(),
        rules=(),
    )
    results = evaluate(lm, sampler_of(lm), task, tmp_path / "run", samples=2)
    assert [len(texts) for texts in results.texts] == [2, 2]


def test_an_experiment_takes_it(lm, tmp_path):
    from sake_jax.experiments.entropy import entropy

    plain = sj.wrap(rows, make_params(), tables=tables, mask_id=MASK, name="plain")
    study = entropy(tmp_path / "study", quick=True, seeds=1, progress=False, model=plain, length=4)
    assert study.rows()
    assert "plain" in (tmp_path / "study" / "settings.json").read_text()


def test_the_laws_hold(lm):
    check_denoiser(lm)
    for style in ("nnx", "linen"):
        check_denoiser(wrapped(style))


def at(positions):
    return positions[..., None].astype(jnp.float32)


def together(tokens):
    """What the other rows may not know."""
    return jnp.sum(tokens[-1, -3:]).astype(jnp.float32)


@pytest.mark.parametrize(
    ("law", "change"),
    [
        ("attend", {"model": lambda p, tokens: rows(p, tokens, jnp.ones(tokens.shape, bool))}),
        ("affine", {"head": lambda p, r: 2 * r @ p["out"].T, "affine": True}),
        ("slices", {"head": lambda p, r: (r - r.mean(1, keepdims=True)) @ p["out"].T}),
        ("batch", {"model": lambda p, t, attend: rows(p, t, attend) - together(t)}),
        ("padding", {"model": lambda p, t, attend, positions: rows(p, t, attend) + at(positions)}),
    ],
)
def test_a_broken_law_is_named(law, change):
    mine = {"model": rows, "params": make_params(), "tables": tables} | change
    with pytest.raises(AssertionError, match=f"law {law!r} is broken"):
        check_denoiser(sj.wrap(**mine, **FACTS))


def test_rows_that_are_not_aligned_are_found():
    """A network that copies: its row says its own token, or the next one."""
    params = {"table": 5 * jnp.eye(V)}

    def copies(p, tokens, attend):
        known = jnp.where(attend & (tokens != MASK), tokens, MASK)
        ring = jnp.where(known == MASK, (jnp.roll(known, 1, axis=1) + 1) % END, known)
        return p["table"][ring]

    early = lambda p, tokens, attend: jnp.roll(copies(p, tokens, attend), -1, axis=1)  # noqa: E731
    facts = {"params": params, "tables": lambda p: p["table"], "mask_id": MASK}
    texts = [[1, 2, 3, 4, 5, 6]]
    check_denoiser(sj.wrap(copies, **facts), texts=texts, skip=("padding", "attend"))
    with pytest.raises(AssertionError, match=r"law 'aligned' is broken: .* -1 columns away"):
        check_denoiser(sj.wrap(early, **facts), texts=texts, skip=("padding", "attend"))
    late = sj.wrap(early, shifted=True, **facts)
    check_denoiser(late, texts=texts, skip=("padding", "attend"))


def test_time_must_be_declared():
    class Timed(sj.testing.ToyDenoiser):
        def read(self, params, view, cache):
            rows, cache = super().read(params, view, cache)
            return rows * view.time[:, None, None], cache

    params = sj.testing.toy_params(0)
    with pytest.raises(AssertionError, match="law 'time' is broken"):
        check_denoiser(Timed(), params, mask_id=16, positions="tokens", cond=1)


def test_what_a_network_asks_for_it_gets():
    def timed(params, tokens, time, cond, positions):
        scale = (1 + time + cond.astype(jnp.float32))[:, None, None]
        return params["embed"][tokens] * scale + 0 * at(positions)

    lm = sj.wrap(timed, make_params(), tables=tables, classes=2, **FACTS)
    assert lm.denoiser.reads_time
    assert lm.config.network.time_conditioning
    out = sj.generate(lm, sampler_of(lm), ["a", "b"], cond=[0, 1], key=KEY)
    assert out.tokens.shape == (2, 1, 6)
    one, two = (lm.hidden([[1]], sigma=[0.5], cond=[label]) for label in (0, 1))
    np.testing.assert_allclose(one / 1.5, two / 2.5, rtol=1e-5)
    with pytest.raises(ValueError, match="asks for the time"):
        lm.logits([[1]], cond=[0])
    check_denoiser(lm, cond=1)


def test_uniform_noise_without_a_mask_token():
    lm = sj.wrap(rows, make_params(), tables=tables, mask_id=None, tokenizer=Letters())
    sampler = sj.sampler_for(lm, length=4, steps=4)
    out = sj.generate(lm, sampler, ["ab"], key=KEY)
    assert out.tokens.shape == (1, 1, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": None}, "needs its parameters"),
        ({"model": Net(make_params())}, "has its parameters inside"),
        ({"head": lambda p, r: r, "tables": None}, "head needs tables"),
        ({"affine": True}, "affine is about a head of your own"),
        ({"read": rows}, "read chooses what a module gives"),
        ({"model": 3}, "must be a function or a module"),
        ({"tables": lambda p: p["out"].T}, "as wide as rows"),
        ({"model": lambda p, tokens: p["embed"][tokens][:, 0]}, "must give"),
        ({"tokenizer": 3}, "must have encode and decode"),
        ({"context": 0}, "context must be at least 1"),
    ],
)
def test_what_cannot_be_wrapped_says_why(change, message):
    usual = {"model": rows, "params": make_params(), "tables": tables, **FACTS}
    with pytest.raises(ValueError, match=message):
        sj.wrap(**usual | change)


def test_what_needs_our_networks_says_so(lm):
    with pytest.raises(ValueError, match="networks of this library"):
        sj.bound(lm, [[1, 2]], key=KEY)
    with pytest.raises(ValueError, match="clean is for block diffusion"):
        lm.logits([[1, 2]], clean=[[1, 2]])
    with pytest.raises(ValueError, match="context"):
        sj.generate(lm, sampler_of(lm, length=60), ["abcdef"], key=KEY)
