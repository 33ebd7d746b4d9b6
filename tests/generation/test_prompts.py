"""What may be a prompt, how it is read, and whether it fits a model."""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.chat_template import render_chats
from sake_jax.generation import (
    chat_prompts,
    encode_prompts,
    fit_prompt,
    prompt_context,
    read_prompts,
)
from sake_jax.generation.ending import checked


@pytest.mark.parametrize(
    ("ids", "length", "truncate", "wanted"),
    [
        ([1, 2, 3], 5, False, [1, 2, 3]),
        ([1, 2, 3], 5, True, [1, 2, 3]),
        ([1, 2, 3], 7, True, [3]),
        ([], 8, False, []),
        ([], 8, True, []),
    ],
)
def test_prompts_that_fit_a_context_of_eight(ids, length, truncate, wanted):
    assert fit_prompt(ids, length, 8, truncate=truncate) == wanted


@pytest.mark.parametrize(("length", "truncate"), [(6, False), (8, True), (9, True)])
def test_prompts_that_do_not(length, truncate):
    message = f"mine and {length} columns must fit the model's context of 8, got 3; write less"
    with pytest.raises(ValueError, match=message):
        fit_prompt([1, 2, 3], length, 8, truncate=truncate, name="mine", remedy="write less")


def test_a_context_that_slides_has_no_end():
    assert prompt_context(sj.load(GOLDENS / "bd3lm")) is None
    assert fit_prompt([1] * 5000, 5000, None) == [1] * 5000


@pytest.fixture(scope="module")
def lm():
    return dataclasses.replace(sj.load("tinystories"))


@pytest.mark.parametrize(
    "prompts",
    [None, 5, b"the dog", "the dog", {"the dog": 1}, [], [None], [b"the dog"], [5], [[2.5]],
     [["the"]], [[True]], [[None]], [[-1]], [[10**9]], [{"a": 1}], [{1, 2}], [bytearray(b"a")],
     [1, 2, 3], ["a\ud800"], ["\udcff"], [np.array([1.5])], [np.array([[1, 2]])], [object()]],
)  # fmt: skip
def test_what_is_no_prompt_is_refused_in_words(prompts, lm):
    with pytest.raises(ValueError, match=r".+, got .+; .+\."):
        inspect.unwrap(encode_prompts)(lm, prompts)  # users have no shape checker


def test_prompts_may_be_arrays_and_empty(lm):
    prompts = [np.array([5, 6]), jnp.array([7]), (8, 9), [], range(3), ""]
    assert inspect.unwrap(encode_prompts)(lm, prompts)[:5] == [[5, 6], [7], [8, 9], [], [0, 1, 2]]


def test_lines_end_at_newlines_only(tmp_path):
    odd = "one\u2028two\x0bthree\x0cfour\x85five\x1csix"
    file = tmp_path / "prompts.txt"
    file.write_bytes(f"{odd}\r\n\n  \nlast".encode())
    assert read_prompts(file) == [odd, "last"]
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"must be text in UTF-8, got .+; convert it"):
        read_prompts(file)
    file.write_bytes(b"\n \n")
    with pytest.raises(ValueError, match="must hold a line of text"):
        read_prompts(file)


def test_names_of_special_tokens_are_text_unless_asked_for(lm):
    mask, end = lm.config.mask_id, lm.config.eos_id
    names = lm.tokenizer.convert_ids_to_tokens([mask, end])
    for name, at in zip(names, (mask, end), strict=True):
        (ids,) = encode_prompts(lm, [f"the {name} dog"])
        assert at not in ids[1:]
        assert name in lm.tokenizer.decode(ids)
        (ids,) = encode_prompts(lm, [f"the {name} dog"], special_tokens=True)
        assert at in ids[1:]
    ordinary = "once upon a time, there was a <b>"
    assert encode_prompts(lm, [ordinary]) == encode_prompts(lm, [ordinary], special_tokens=True)


def test_a_generation_says_how_it_read_its_prompts(lm):
    """Also to a replay; runs of earlier versions, which did not say it, are read as they read."""
    mask = lm.tokenizer.convert_ids_to_tokens([lm.config.eos_id])[0]
    sampler, key = sj.masked(lm, length=4, steps=1), jax.random.key(0)
    plain = sj.generate(lm, sampler, [f"a {mask}"], key=key)
    special = sj.generate(lm, sampler, [f"a {mask}"], key=key, special_tokens=True)
    assert plain.settings["options"]["special_tokens"] is False
    for out in (plain, special):
        assert (sj.replay(out.settings, lm).tokens == out.tokens).all()
    older = dict(special.settings)
    older["options"] = {k: v for k, v in older["options"].items() if k != "special_tokens"}
    assert sj.replay(older, lm).settings["options"]["special_tokens"] is True


def test_generations_that_cannot_be_held_are_refused(lm):
    sampler = sj.masked(lm, length=4, steps=1)
    for samples in (10**12, 2**22 + 1):
        with pytest.raises(ValueError, match=r"prompts × samples must be at most 4,194,304"):
            sj.generate(lm, sampler, ["a"], samples=samples, key=jax.random.key(0))
    for stop in (None, 5, "x", b"x"):
        with pytest.raises(ValueError, match="stop must be a list"):
            inspect.unwrap(checked)(lm, stop)
    for length, steps in ((10**12, 8), (2.5, 8), (8, 10**12), (0, 1), (8, -1), ("8", 8), (8, None)):
        for plan in (sj.blocks, sj.descent):
            with pytest.raises(ValueError, match=r"(length|steps) must be .+, got .+; .+\."):
                inspect.unwrap(plan)(length, steps)


TEMPLATES = [
    "{% for m in messages %}{{ bos_token }}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}",
    "{{ messages | tojson }}{% if add_generation_prompt %} &<a>{% endif %}",
    "{%- for m in messages -%}\n  {% generation %}{{ m['content'] }}{% endgeneration %}\n"
    "{% break %}{%- endfor %}",
    "{{ messages | tojson(indent=1) }}{{ tools is none }}{{ documents is defined }}",
]


def test_chats_are_rendered_as_transformers_does(lm):
    for template in TEMPLATES:
        lm.tokenizer.chat_template = template
        for content in ("the dog", " spaces ", "quotes \"'<&> ü"):
            chat = [{"role": "user", "content": content}]
            wanted = lm.tokenizer.apply_chat_template(
                chat, add_generation_prompt=True, tokenize=False
            )
            assert render_chats(lm.tokenizer, [chat, chat]) == [wanted, wanted]


def test_special_tokens_of_a_template_are_special_and_those_of_a_user_are_not(lm):
    mask, end = lm.config.mask_id, lm.config.eos_id
    names = dict(zip((mask, end), lm.tokenizer.convert_ids_to_tokens([mask, end]), strict=True))
    lm.tokenizer.chat_template = f"{names[end]}{{{{ messages[0].content }}}} ok{names[end]}"
    text = f"a {names[end]} b {names[mask]} c"
    (ids,) = chat_prompts(lm, [text])
    assert (ids[0], ids[-1], ids.count(end), ids.count(mask)) == (end, end, 2, 0)
    assert lm.tokenizer.decode(ids).count(names[end]) == 3, "the user's words are all there"
    (ids,) = chat_prompts(lm, [text], special_tokens=True)
    assert (ids.count(end), ids.count(mask)) == (3, 1)
    ordinary = lm.tokenizer(f"{names[end]}the dog ok{names[end]}", add_special_tokens=False)
    assert chat_prompts(lm, ["the dog"]) == [ordinary["input_ids"]]


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
HOSTILE = {
    "loops": (ENDLESS, "seconds of processor time"),
    "memory": ("{{ 'a' * 10000000000 }}", "MB of memory"),
    "doubling": ("{% set x = namespace(v='a') %}{% for i in range(60) %}"
                 "{% set x.v = x.v ~ x.v %}{% endfor %}{{ x.v }}", "(MB of memory|processor time)"),
    "length": ("{{ 'a' * 20000000 }}", "more than 16,777,216 characters"),
    "recursion": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
    "no template": ("{% for %}", "TemplateSyntaxError"),
    "its own error": ("{{ raise_exception('only [two] roles') }}", "only \\[two\\] roles"),
    "internals": ("{{ messages.__class__.__mro__ }}", "SecurityError"),
    "range": ("{{ range(10 ** 12) | list }}", "OverflowError"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_ends(name, lm, monkeypatch):
    template, message = HOSTILE[name]
    monkeypatch.setattr("sake_jax.chat_template.SECONDS", 1)
    lm.tokenizer.chat_template = template
    with pytest.raises(ValueError, match=f"chat template must render the chat, got .*{message}"):
        chat_prompts(lm, ["the dog"])
