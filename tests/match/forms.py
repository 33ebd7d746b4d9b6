"""Expressions and schemas that texts are held to, and how a text is judged."""

import json
import re

from sake_jax.automata import schema_expression

CHARACTER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{2,8}$"},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
        "likes": {"type": "array", "items": {"enum": ["cake", "dogs", "the sun"]}, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
}
NESTED = {
    "type": "object",
    "properties": {
        "pet": {"$ref": "#/$defs/pet"},
        "friends": {"type": "array", "items": {"$ref": "#/$defs/pet"}, "maxItems": 1},
        "note": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 5}]},
    },
    "required": ["pet"],
    "$defs": {
        "pet": {
            "type": "object",
            "properties": {"kind": {"enum": ["cat", "dog"]}, "good": {"type": "boolean"}},
            "required": ["kind"],
        }
    },
}

FORMS = {
    "anything": r"(?s).*",
    "one line": r".*",
    "one letter": r"[a-z]",
    "empty": r"",
    "digits": r"[0-9]{3}",
    "a date": r"[0-9]{4}-[01][0-9]-[0-3][0-9]",
    "a time": r"(?:[01][0-9]|2[0-3]):[0-5][0-9]",
    "letters": r"[a-z]+",
    "words": r"[a-z]+(?: [a-z]+){2,4}",
    "a sentence": r"[a-z]+(?: [a-z]+)*[.!?]",
    "friends": r"[a-z]+ and [a-z]+ are friends\.",
    "a choice": r"the (?:dog|cat|bird) (?:ran|sat|flew away)\.",
    "even number of a": r"(?:[^a]*a[^a]*a)*[^a]*",
    "no e": r"[^e\n]{5,}",
    "a list": r"\[(?:[0-9]+(?:, [0-9]+)*)?\]",
    "quoted": r'"[^"\n]*"',
    "email": r"[a-z0-9]+@[a-z]+\.(?:com|org)",
    "hex": r"#[0-9a-f]{6}",
    "repeated": r"(?:na ){2,4}batman",
    "accents": r"[àâçéèêëîïôûù]{2,4}",
    "emoji": r"[\U0001f600-\U0001f64f]{1,3}",
    "unicode words": r"\w+ \w+",
    "white space": r"\s{1,3}x",
    "any case": r"(?i)once upon a time",
    "lazy": r"a+?b*?c??",
    "nested counts": r"(?:(?:ab){1,2}c){2,3}",
    "long": r"[a-z ]{40,60}",
    "anchored": r"^(?:yes|no)$",
    "lines": r"(?:- [a-z ]+\n){2,3}",
    "csv": r"[a-z]+,[0-9]+(?:\n[a-z]+,[0-9]+)*",
    "a number": schema_expression({"type": "number"}),
    "json, a character": CHARACTER,
    "json, nested": NESTED,
    "json, strings": {"type": "array", "items": {"type": "string", "maxLength": 6}, "minItems": 1},
}


def expression_of(form):
    return form if isinstance(form, str) else schema_expression(form)


def is_valid(form, text):
    """By Python's verdict; JSON must be JSON that its schema describes, too."""
    if not re.fullmatch(expression_of(form), text):
        return False
    if isinstance(form, str):
        return True
    return instance_of(form, json.loads(text), form)


def instance_of(schema, value, root):
    """A small judge of the words that the schemas above use."""
    if "$ref" in schema:
        return instance_of(root["$defs"][schema["$ref"].split("/")[-1]], value, root)
    if "enum" in schema:
        return value in schema["enum"]
    if "anyOf" in schema:
        return any(instance_of(part, value, root) for part in schema["anyOf"])
    kind = schema["type"]
    if kind == "object":
        known = schema["properties"]
        return (
            isinstance(value, dict)
            and set(schema["required"]) <= set(value) <= set(known)
            and all(instance_of(known[key], part, root) for key, part in value.items())
        )
    if kind == "array":
        inside = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return inside and all(instance_of(schema["items"], part, root) for part in value)
    if kind == "string":
        least, most = schema.get("minLength", 0), schema.get("maxLength", 10**9)
        right = isinstance(value, str) and least <= len(value) <= most
        return right and re.search(schema.get("pattern", ""), value) is not None
    if kind == "integer":
        right = isinstance(value, int) and not isinstance(value, bool)
        return right and schema["minimum"] <= value <= schema["maximum"]
    kinds = {"boolean": bool, "null": type(None)}
    return isinstance(value, kinds[kind])
