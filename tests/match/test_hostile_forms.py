"""Expressions and schemas of strangers: an answer or a refusal in words, soon."""

import json
import time

import numpy as np
import pytest

from sake_jax.automata import byte_automaton, bytewise, read_form, schema_expression

SECONDS = 20
"""Of processor time, several times what the slowest takes."""


def arrays(depth):
    return '{"items":' * depth + '{"type":"integer"}' + ',"type":"array"}' * depth


def objects(depth):
    return '{"properties":{"a":' * depth + '{"type":"integer"}' + "}}" * depth


def optional(count):
    return json.dumps({"properties": {f"k{at}": {"type": "integer"} for at in range(count)}})


EXPRESSIONS = {
    "counts in counts": "((a{1000}){1000}){1000}",
    "a large count": "a{1000000000}",
    "nothing many times": "((){1000000000}){1000000000}",
    "states that double": "(a|b)*a(a|b){25}",
    "parentheses": "(" * 3000 + "a" + ")" * 3000,
}
SCHEMAS = {
    "20 arrays": arrays(20),
    "400 arrays": arrays(400),
    "100,000 arrays": arrays(100_000),
    "400 objects": objects(400),
    "100,000 objects": objects(100_000),
    "400 properties": optional(400),
    "2,000 properties": optional(2000),
    "a long array": '{"type":"array","items":{"type":"integer"},"minItems":1000000000}',
    "a long string": '{"type":"string","maxLength":1000000000000}',
    "no number": '{"enum":[NaN]}',
    "properties in a list": '{"type":"object","properties":[]}',
    "one name": '{"properties":{"a":{"type":"integer"}},"required":"a"}',
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_is_refused_in_words_and_soon(name, monkeypatch):
    monkeypatch.setattr(bytewise, "MOST", 10_000)
    begun = time.process_time()
    with pytest.raises(ValueError, match=r"must .*, got .*[;(]"):
        byte_automaton(EXPRESSIONS[name])
    assert time.process_time() - begun < SECONDS


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_refused_in_words_and_soon(name):
    begun = time.process_time()
    with pytest.raises(ValueError, match="must "):
        byte_automaton(schema_expression(read_form(SCHEMAS[name])))
    assert time.process_time() - begun < SECONDS


@pytest.mark.parametrize("form", [arrays(4), objects(40), optional(15)])
def test_what_is_within_reason_is_not_refused(form):
    automaton = byte_automaton(schema_expression(read_form(form)))
    assert not automaton.matches("x")


@pytest.mark.parametrize(
    "expression",
    ["", "a{3}b*", "(?:na){2,}|é", "[a-c]{0,5}x", "(a|b)*a(a|b){6}", r"[^\s\S]", ".{9}"],
)
def test_the_lengths_of_texts_change_nothing_but_the_time(expression, monkeypatch):
    found = byte_automaton(expression)
    monkeypatch.setattr(bytewise, "_lengths", lambda table, accepts: accepts[:, None] * 1)
    for ours, right in zip(found, byte_automaton(expression), strict=True):
        np.testing.assert_array_equal(ours, right)


def test_a_long_chain_takes_seconds():
    begun = time.process_time()
    assert byte_automaton(".{0,1500}").matches("é" * 1500)
    assert time.process_time() - begun < SECONDS
