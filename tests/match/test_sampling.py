"""Every text matches: under any process, order, temperature, filter and number of tokens a step."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from forms import CHARACTER, FORMS, expression_of, is_valid

import sake_jax as sj
from traces import programs

WORDS = [" the", " dog", "once", " upon", " time", " and", '"name"', '": "', "é", "na ", "and"]
BYTES = [bytes([byte]) for byte in range(256)]
TOKENS = [*BYTES, *WORDS, None, None]
"""A vocabulary of all bytes and some words; then the end token, and the mask."""
SIZE = len(TOKENS)
END, MASK = SIZE - 2, SIZE - 1
LENGTH = 48


def masked(denoiser, form, length, **options):
    return sj.masked(denoiser, length=length, **({"block": length, "guidance": form} | options))


VARIANTS = {
    "confidence, two a step": lambda d, form, n: masked(d, form, n, steps=n // 2),
    "greedy, four a step": lambda d, form, n: masked(
        d, form, n, steps=n // 4, draw=sj.temperature(0.0)
    ),
    "hot, random, eight a step, nucleus": lambda d, form, n: masked(
        d, form, n, steps=n // 8, reveal=sj.reveal.random,
        draw=sj.chain(sj.temperature(1.5), sj.top_p(0.3)),
    ),
    "blocks, sake, few": lambda d, form, n: masked(
        d, None, n, steps=n // 2, block=n // 4, guidance=sj.chain(sj.sake(2.0), form),
        draw=sj.chain(sj.temperature(0.7), sj.top_k(2)),
    ),
    "threshold, the form first": lambda d, form, n: masked(
        d, None, n, steps=n // 4, reveal=sj.reveal.threshold(0.05),
        guidance=sj.chain(form, sj.top_p(0.5), sj.sake(1.0, scope="batch")),
    ),
    "cut before, entropy": lambda d, form, n: masked(
        d, None, n, steps=n // 4, reveal=sj.reveal.entropy_bound(1.0),
        guidance=sj.chain(sj.top_k(1), form, sj.forbid([END])),
    ),
    "ancestral": lambda d, form, n: sj.ancestral(d, length=n, steps=6, guidance=form),
    "remasking": lambda d, form, n: sj.ancestral(
        d, length=n, steps=12, guidance=form, process=sj.remasking(0.5)
    ),
    "uniform": lambda d, form, n: sj.ancestral(
        d, length=n, steps=6, guidance=form, process=sj.uniform(), final="none", reuse=False
    ),
}  # fmt: skip


def toy_texts(form, variant, rows, seed=0, given=()):
    guidance = sj.matches(form, TOKENS, ends=[END])
    sampler = VARIANTS[variant](sj.testing.ToyDenoiser(), guidance, LENGTH)
    mask_id = None if variant == "uniform" else MASK
    canvas = sj.canvas([list(given)], LENGTH, mask_id=mask_id, samples=rows)
    params = sj.testing.toy_params(seed, vocabulary=SIZE, length=LENGTH + len(given))
    done, info = sj.run(sampler, params, jax.random.key(seed), canvas)
    assert bool(jnp.all(info.finite))
    return [toy_text(ids) for ids in done.tokens[:, len(given) :].tolist()]


def toy_text(ids):
    """The text before the end token; nothing but end tokens may stand after it."""
    at = ids.index(END) if END in ids else len(ids)
    assert set(ids[at:]) <= {END}
    parts = [TOKENS[i] for i in ids[:at]]
    return b"".join(p if isinstance(p, bytes) else p.encode() for p in parts).decode()


QUICK = [("confidence, two a step", "json, a character"), ("blocks, sake, few", "csv")]
OTHERS = [
    (variant, name)
    for at, name in enumerate(FORMS)
    for variant in [list(VARIANTS)[at % len(VARIANTS)]]
]
CASES = [
    *(pytest.param(*case, 8, id=f"{case[0]}-{case[1]}-few") for case in QUICK),
    *(pytest.param(*case, 320, marks=pytest.mark.slow) for case in OTHERS),
]


@pytest.mark.parametrize(("variant", "name", "rows"), CASES)
def test_every_text_of_the_toy_matches(variant, name, rows):
    """34 forms, 320 texts of each when all are run: more than 10,000."""
    texts = toy_texts(FORMS[name], variant, rows, given=[3, 4])
    assert len(texts) == rows
    wrong = [text for text in texts if not is_valid(FORMS[name], text)]
    assert not wrong


@pytest.fixture(scope="module")
def lm():
    return sj.load("tinystories")


BUILT_IN = {name: make for name, make in VARIANTS.items() if name != "uniform"}


KNOWN = ["a date", "words", "a sentence", "friends", "a choice", "unicode words", "a list"]
KNOWN += [name for name in FORMS if "json" in name]
"""At least one form for each variant."""


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_every_text_of_the_built_in_model_matches(lm, name):
    form, at = FORMS[name], KNOWN.index(name)
    guidance = sj.matches(form, lm.tokenizer)
    sampler = list(BUILT_IN.values())[at % len(BUILT_IN)](lm, guidance, LENGTH)
    key, prompts = jax.random.key(at), ["", "once upon a time"]
    out = sj.generate(lm, sampler, prompts, samples=40, batch=80, key=key)
    texts = [text for group in out.texts for text in group]
    assert len(texts) == 80
    assert not [text for text in texts if not is_valid(form, text)]


@pytest.mark.slow
def test_a_prompt_a_form_and_its_settings(lm, tmp_path):
    """Through `generate`, saved, and replayed from what was saved."""
    guidance = sj.chain(sj.sake(1.0), sj.matches(CHARACTER, lm.tokenizer))
    sampler = sj.masked(lm, length=40, steps=5, block=40, guidance=guidance)
    key = jax.random.key(3)
    out = sj.generate(lm, sampler, ["the girl"], samples=6, key=key, save=tmp_path)
    assert all(is_valid(CHARACTER, text) for text in out.texts[0])
    assert len(set(out.texts[0])) == 6
    assert "token" in set(out.ended[0])  # texts are shorter than the canvas
    assert sj.replay(tmp_path, lm).texts == out.texts


@pytest.mark.slow
def test_infilling_reads_what_is_given(lm):
    guidance = sj.matches(r"the [a-z]+ and the [a-z]+ are (?:good|bad)\.", lm.tokenizer)
    sampler = sj.masked(lm, length=16, block=16, steps=4, guidance=guidance)
    hole = "<|mask|>"
    prompt = f"the{hole * 3} and the{hole * 2} are{hole * 2}"
    out = sj.generate(lm, sampler, [prompt], samples=8, key=jax.random.key(0), infill=True)
    for text in out.texts[0]:
        assert re.fullmatch(guidance.expression, text), text
        assert " and the " in text


def test_what_is_given_must_fit(lm):
    guidance = sj.matches(r"a[a-z ]+", lm.tokenizer)
    sampler = sj.masked(lm, length=8, guidance=guidance)
    given = "the<|mask|><|mask|>"
    with pytest.raises(
        ValueError,
        match=r"must be able to match 'a.* \(1 tokens or more\), got '2 open columns and 1 th",
    ):
        sj.generate(lm, sampler, [given], key=jax.random.key(0), infill=True)


def test_a_canvas_that_is_too_short():
    long = sj.matches("[a-z]{30}", [*"abcdefghijklmnop", None])
    sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, guidance=long)
    canvas = sj.canvas([[1]], 8, mask_id=16)
    with pytest.raises(ValueError, match="30 tokens or more, got 8; raise length"):
        sj.run(sampler, sj.testing.toy_params(0), jax.random.key(0), canvas)
    odd = sj.matches("(?:aa)*a", ["a", None])
    odd.check(sj.canvas([[]], 7, mask_id=1))
    with pytest.raises(
        ValueError, match=r"must be able to match .*, got '8 open columns'; raise or"
    ):
        odd.check(sj.canvas([[]], 8, mask_id=1))


def test_places_where_a_form_is_refused(lm):
    form = sj.matches("a*", ["a", None])
    denoiser = sj.testing.ToyDenoiser()
    with pytest.raises(ValueError, match="draw must only shape logits"):
        sj.masked(denoiser, length=4, draw=form)
    with pytest.raises(ValueError, match="an end token must be at most 1"):
        sj.matches("a", ["a", None], ends=[2])
    with pytest.raises(ValueError, match="must match some text of the tokens"):
        sj.matches("b", ["a", None])
    with pytest.raises(ValueError, match=r"at most one part that draws jointly, got .*; make one"):
        sj.chain(form, sj.when(form))
    with pytest.raises(ValueError, match=r"capped must not hold a form, got .*; chain the form"):
        sj.capped(sj.chain(form, sj.sake(1.0)), 0.1)
    with pytest.raises(ValueError, match="a form needs noise for its own draw"):
        sj.masked(denoiser, length=4, guidance=form, noise=sj.systematic())
    key, params = jax.random.key(0), sj.testing.toy_params(0)
    canvas = sj.canvas([[1]], 4, mask_id=16)
    larger = sj.masked(denoiser, length=4, guidance=sj.matches("a*", ["a"] * 18))
    with pytest.raises(ValueError, match="tokenizer must be the model's"):
        sj.run(larger, params, key, canvas)


REVISING = {
    "edits": {"process": sj.editing_process(), "plan": sj.blocks(4, 4, edits=2)},
    "edits without an end": {"process": sj.editing_process(), "plan": sj.blocks(4, 4)},
    "new noise": {"process": sj.renoising(), "plan": sj.blocks(4, 4, edits=0)},
    "some of the draws": {
        "process": sj.uniform(),
        "plan": sj.descent(4, 4, final="none"),
        "reveal": sj.reveal.threshold(0.5),
    },
}


@pytest.mark.parametrize("name", REVISING)
def test_processes_under_which_a_form_would_break(name):
    form = sj.matches("a*", ["a", None])
    with pytest.raises(ValueError, match=r"a form needs a process that leaves .*; use masked"):
        sj.sampler(sj.testing.ToyDenoiser(), guidance=form, **REVISING[name])


def test_any_text_is_no_constraint():
    """Exactly: the same logits, and the same tokens from the same key."""
    letters = [*"abcdefghijklmnop", None]
    canvas = sj.canvas([[1, 2]], 8, mask_id=16, samples=4)
    sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, steps=4, guidance=sj.forbid([16]))
    free = sampler.replace(guidance=sj.chain(sj.forbid([16]), sj.matches(".*", letters)))
    args = sj.testing.toy_params(0), jax.random.key(0), canvas
    (one, one_info), (two, two_info) = sj.run(sampler, *args), sj.run(free, *args)
    assert jnp.array_equal(one.tokens, two.tokens)
    assert jnp.array_equal(one.log_p, two.log_p)
    assert jnp.array_equal(one_info.entropy, two_info.entropy)


def test_numbers_compile_nothing():
    form = sj.matches("[a-p]*[a-d]", [*"abcdefghijklmnop", None])
    canvas = sj.canvas([[1, 2]], 4, mask_id=16)

    def run(strength, temperature):
        guidance = sj.chain(sj.sake(strength), form)
        sampler = sj.masked(
            sj.testing.ToyDenoiser(), length=4, guidance=guidance, draw=sj.temperature(temperature)
        )
        return sj.run(sampler, sj.testing.toy_params(0), jax.random.key(0), canvas)

    run(1.0, 0.5)
    before = programs(sj.run)
    run(2.0, 0.7)
    assert programs(sj.run) == before


@pytest.mark.slow
def test_a_switched_form_acts_while_it_is_on():
    letters = [*"abcdefghijklmnop", None]
    canvas = sj.canvas([[1, 2]], 4, mask_id=16, samples=32)
    sampler = sj.masked(sj.testing.ToyDenoiser(), length=4, steps=1, draw=sj.temperature(3.0))
    args = sj.testing.toy_params(0), jax.random.key(0), canvas
    form = sj.matches("[a-c]{4}", letters)
    on, _ = sj.run(sampler.replace(guidance=sj.when(form)), *args)
    off, _ = sj.run(sampler.replace(guidance=sj.when(form, end=0.0)), *args)
    assert bool(jnp.all(on.tokens[:, 2:] < 3))
    assert not bool(jnp.all(off.tokens[:, 2:] < 3))
    alone, _ = sj.run(sampler, *args)
    assert jnp.array_equal(off.tokens, alone.tokens)


def test_in_a_loop_of_your_own():
    """Marginals from bare arrays: a token of each row at a time, at any place."""
    form = sj.matches("(?:ab|ba)*c", [*"abcdefghijklmnop", None])
    denoiser, params, given = sj.testing.ToyDenoiser(), sj.testing.toy_params(0), 2
    canvas = sj.canvas([[5, 6]], 7, mask_id=16, samples=16)

    @jax.jit
    def write(tokens, is_open, key):
        view = sj.testing.toy_view(0).replace(canvas=canvas.replace(tokens=tokens, open=is_open))
        logits, _ = sj.guided_logits(
            form,
            tokens=tokens,
            features=denoiser.read(params, view, None)[0],
            head=lambda rows: denoiser.head(params, rows),
            tables=denoiser.tables(params),
            open=is_open,
            prompt=canvas.prompt,
        )
        draw, place = jax.random.split(key)
        drawn = jax.random.categorical(draw, logits).astype(tokens.dtype)
        chosen = jnp.argmax(jnp.where(is_open, jax.random.uniform(place, is_open.shape), -1), 1)
        here = jnp.arange(tokens.shape[1])[None] == chosen[:, None]
        return jnp.where(here, drawn, tokens), is_open & ~here

    tokens, is_open = canvas.tokens, canvas.open
    for key in jax.random.split(jax.random.key(0), 7):
        tokens, is_open = write(tokens, is_open, key)
    texts = {"".join(chr(97 + i) for i in row) for row in tokens[:, given:].tolist()}
    assert len(texts) > 1
    assert all(re.fullmatch(form.expression, text) for text in texts)


def test_from_the_command_line(tmp_path):
    from typer.testing import CliRunner

    from sake_jax import cli

    def texts(match):
        words = ["generate", "the dog", "--match", match, "--length", "24", "--steps", "6"]
        result = CliRunner().invoke(cli.app, [*words, "--samples", "3", "--top-p", "0.9", "--json"])
        assert result.exit_code == 0, result.output
        (found,) = json.loads(result.output).values()
        return found["texts"][0]

    schema = {"type": "array", "items": {"enum": ["cat", "dog"]}, "minItems": 2, "maxItems": 3}
    file = tmp_path / "animals.json"
    file.write_text(json.dumps(schema))
    assert all(set(json.loads(text)) <= {"cat", "dog"} for text in texts(str(file)))
    for match, message in {"(a": "Python's re takes", "no.json": "must be a file"}.items():
        result = CliRunner().invoke(cli.app, ["generate", "the dog", "--match", match])
        assert result.exit_code == 1
        assert message in " ".join(result.output.split())


def test_expressions_have_names():
    form = sj.matches("a+", ["a", None])
    assert repr(form) == "Matches('a+')"
    assert np.asarray(form.edges.classes).shape == (2,)
    assert expression_of("a") == "a"
