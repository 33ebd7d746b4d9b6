"""Expressions, schemas and vocabularies become automata that agree with Python's `re`."""

import re

import numpy as np
import pytest
from forms import CHARACTER, FORMS, NESTED, expression_of, is_valid
from hypothesis import given, settings
from hypothesis import strategies as st

import sake_jax as sj
from sake_jax.automata import byte_automaton, schema_expression, token_automaton, token_bytes
from sake_jax.automata.tokenwise import DEAD, END, SKIP


@pytest.fixture(scope="module")
def tokenizer():
    return sj.load("tinystories").tokenizer


@pytest.mark.parametrize("name", FORMS)
def test_automaton_agrees_with_re(name):
    expression = expression_of(FORMS[name])
    automaton = byte_automaton(expression)

    @settings(max_examples=60, deadline=None)
    @given(st.one_of(st.text(max_size=12), st.from_regex(expression, fullmatch=True)))
    def agree(text):
        text = text.encode(errors="ignore").decode()  # without halves of characters
        assert automaton.matches(text) == bool(re.fullmatch(expression, text))

    agree()


ODD = [
    r"a*b+c?",
    r"(a|ab)(c|bcd)(d*)",
    r"(?i)straße|[^k]",
    r"(?a)\w\d\s",
    r"[^\W\d_]{2}",
    r"a|^b$|",
]


@pytest.mark.parametrize("expression", ODD)
def test_odd_expressions_agree_with_re(expression):
    automaton = byte_automaton(expression)
    letters = st.text("abcdkK\u212asßẞtrSTREe 1é\n_", max_size=6)

    @settings(max_examples=200, deadline=None)
    @given(letters)
    def agree(text):
        assert automaton.matches(text) == bool(re.fullmatch(expression, text))

    agree()


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("(a", "one that Python's re takes, got '\\(a' .*; mend it"),
        (r"(a)\1", "must be regular, got 'a reference back'; leave it out"),
        (r"(?=a)a", "must be regular, got 'a look ahead"),
        (r"\bword", "must be regular, got .*b or"),
        ("a^b", "must be regular"),
        ("(?:a{1000}){400}", "at most 100,000 states, got 'many more'; lower the counts"),
        pytest.param(
            "[ab]*a[ab]{18}", "states, got 'more'; lower the counts", marks=pytest.mark.slow
        ),
    ],
)
def test_expressions_that_are_refused(expression, message):
    with pytest.raises(ValueError, match=message):
        byte_automaton(expression)


def walk_of(made):
    """{(state, class): state} of the edges."""
    source = np.repeat(np.arange(len(made.accepts)), np.diff(made.first)).tolist()
    edges = zip(source, made.label.tolist(), made.target.tolist(), strict=True)
    return {(s, c): t for s, c, t in edges}


def test_tokens_with_the_same_effect_are_one_class():
    tokens = [b"a", b"b", b"ab", b"abab", b"c", None, b""]
    made = token_automaton(byte_automaton("(?:ab)*"), tokens, ends=[5])
    assert made.classes[2] == made.classes[3]
    assert len({*made.classes.tolist()}) == 6  # a, b, both of (ab)+, dead, end, skip
    assert (made.classes[4], made.classes[5], made.classes[6]) == (DEAD, END, SKIP)
    assert made.shortest == 0
    walk = walk_of(made)
    assert walk[0, made.classes[2]] == 0
    assert walk[walk[0, made.classes[0]], made.classes[1]] == 0


def test_arcs_read_what_edges_read():
    """Once for each two states, and bundles once for all arcs that read the same."""
    tokens = [*"abcdefghij", "ab", '"', None]
    made = token_automaton(byte_automaton('"[a-j]{2,9}"|[a-c]+'), token_bytes(tokens), ends=[12])
    reads = [made.part_label[made.part_bundle == own].tolist() for own in made.arc_bundle]
    arcs = list(zip(made.arc_source.tolist(), made.arc_target.tolist(), strict=True))
    assert len(set(arcs)) == len(arcs) < len(made.label)
    found = {(s, c): t for (s, t), classes in zip(arcs, reads, strict=True) for c in classes}
    assert found == walk_of(made)
    assert made.bundles == len({tuple(sorted(classes)) for classes in reads}) < len(arcs)


def test_the_empty_text_needs_an_end_token():
    with pytest.raises(ValueError, match="a text of one token or more, got 'only the empty text'"):
        token_automaton(byte_automaton(""), [b"a"])


@pytest.mark.parametrize("name", ["a date", "json, a character", "unicode words", "emoji"])
def test_tokens_of_a_text_lead_where_its_bytes_lead(name, tokenizer):
    expression = expression_of(FORMS[name])
    tokens = token_bytes(tokenizer)
    bytewise = byte_automaton(expression)
    made = token_automaton(bytewise, tokens, ends=[0])
    walk = walk_of(made)

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(1, 2046), max_size=5), st.from_regex(expression, fullmatch=True))
    def agree(ids, text):
        for case in (ids, tokenizer(text, add_special_tokens=False)["input_ids"]):
            state, data = 0, b"".join(tokens[i] or b"" for i in case)
            for i in case:
                state = walk.get((state, made.classes[i]), -1)
            accepted = state >= 0 and bool(made.accepts[state])
            assert accepted == bytewise.matches(data)

    agree()


def test_token_texts_are_those_of_the_tokenizer(tokenizer):
    tokens = token_bytes(tokenizer)
    ids = tokenizer("The dog's 10 cakes, é \n  \U0001f600!", add_special_tokens=False)["input_ids"]
    assert b"".join(tokens[i] for i in ids).decode() == tokenizer.decode(ids)
    assert tokens[0] is None  # the end token


def test_vocabularies_of_sentence_piece():
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    names = ["<unk>", "\u2581the", "<0x0A>", "dog", "\u2581"]
    made = Tokenizer(models.Unigram([(name, 0.0) for name in names], 0, byte_fallback=True))
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")
    assert token_bytes(fast) == [None, b" the", b"\n", b"dog", b" "]
    made.decoder = decoders.WordPiece()
    with pytest.raises(
        ValueError, match=r"must be byte-level, or SentencePiece's, got .*WordPiece"
    ):
        token_bytes(PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>"))


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (None, "needs the tokenizer of the model, got None; pass lm.tokenizer"),
        (["a", 3], "tokens must be str, bytes or None"),
        ("abc", "must be a fast one of transformers, got 'str'"),
    ],
)
def test_tokenizers_that_are_refused(tokenizer, message):
    with pytest.raises(ValueError, match=message):
        sj.matches("a*", tokenizer)


@pytest.mark.parametrize("schema", [CHARACTER, NESTED])
def test_schemas_describe_their_instances(schema):
    @settings(max_examples=50, deadline=None)
    @given(st.from_regex(schema_expression(schema), fullmatch=True))
    def valid(text):
        assert is_valid(schema, text)

    valid()


def test_optional_properties_and_lists():
    schema = {
        "properties": {key: {"type": "null"} for key in "abc"},
        "required": ["b"],
        "additionalProperties": False,
        "description": "says nothing",
    }
    expression = schema_expression(schema)
    right = ['{"b": null}', '{"a":null,"b":null}', '{"b": null, "c": null}']
    wrong = ["{}", '{"a": null}', '{"c": null, "b": null}', '{"b": null,}']
    assert all(re.fullmatch(expression, text) for text in right)
    assert not any(re.fullmatch(expression, text) for text in wrong)
    lists = schema_expression(
        {"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 3}
    )
    assert [bool(re.fullmatch(lists, t)) for t in ("[1]", "[1, 1]", "[1,1,1]")] == [0, 1, 1]
    assert re.fullmatch(schema_expression({"type": ["integer", "null"]}), "-12")
    assert schema_expression({"type": "array", "items": {"type": "null"}, "maxItems": 0}) == r"\[\]"


SELF = {
    "$ref": "#/$defs/tree",
    "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (SELF, "must not contain itself"),
        ({}, "must be an object that says what is valid"),
        ({"type": "thing"}, "type must be one of object, array"),
        ({"type": "string", "format": "date"}, "described by type, pattern.*'format'"),
        ({"type": "string", "pattern": "a"}, "must be for all of the string"),
        ({"type": "string", "pattern": '^"$'}, "must not match quotes"),
        ({"type": "string", "pattern": "^a$", "minLength": 1}, "says the length too"),
        ({"type": "integer", "minimum": 1}, "must have minimum and maximum"),
        ({"type": "integer", "minimum": 1, "maximum": 10**6}, "less than 1000 apart"),
        ({"oneOf": [{"type": "null"}]}, "write anyOf"),
        ({"anyOf": []}, "a list of at least one"),
        ({"$ref": "#/nowhere"}, "must lead into the schema"),
        ({"enum": [1], "minimum": 0}, "enum must stand alone"),
        ({"type": "object", "required": ["a"]}, "what is required must be described"),
        ({"type": "array"}, "must say what its items are"),
        ({"properties": {}, "additionalProperties": {}}, "additionalProperties has no place"),
        ([], "must be an object"),
    ],
)
def test_schemas_that_are_refused(schema, message):
    with pytest.raises(ValueError, match=message):
        schema_expression(schema)
