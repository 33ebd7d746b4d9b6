"""From a JSON Schema to an expression for JSON texts that it holds valid."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sake_jax.automata.bytewise import MOST, byte_automaton
from sake_jax.checks import require, whole

SPACE = "[ ]?"
"""What may stand after a comma and a colon."""
UNIT = "(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})"
"""Four digits of a character that is no half of one."""
CHARACTER = rf'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u{UNIT})'
"""One character of a JSON string."""
INTEGER = "-?(?:0|[1-9][0-9]*)"
NUMBER = rf"{INTEGER}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
LONGEST = 10 * MOST
"""Letters of an expression, at most. An array says its items twice, so that each array in another
one doubles the expression."""
LARGEST = 1000
"""Whole numbers between a minimum and a maximum, at most: they are listed."""
WORDS = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
WORDS += ("$schema", "$id", "$comment", "$defs", "definitions")
"""What says nothing about what is valid."""


def schema_expression(schema: Any) -> str:
    """An expression whose texts are JSON documents that the schema holds valid.

    Properties stand in the schema's order, those that are not required may be left out, and there
    are no others. What an expression cannot say (schemas that contain themselves, numbers between
    bounds that are far apart) and what is not known here is refused.

    >>> found = schema_expression({"properties": {"age": {"type": "integer"}}, "required": ["age"]})
    >>> bool(re.fullmatch(found, '{"age": 7}')), bool(re.fullmatch(found, '{"age": "7"}'))
    (True, False)
    """
    rule = "a JSON Schema must be an object"
    require(isinstance(schema, Mapping), rule, schema, "name types, or write an expression")
    try:
        return _Reader(schema).read(schema, "schema", ())
    except RecursionError as error:
        rule = "a JSON Schema must have less inside each other, and fewer properties"
        raise ValueError(f"{rule}, got too many; write an expression.") from error


def read_form(text: str) -> str | dict[str, Any]:
    """A form as a command line has it: a JSON Schema, the name of its file, or an expression.

    >>> read_form('{"type": "integer"}'), read_form("[0-9]+")
    ({'type': 'integer'}, '[0-9]+')
    """
    described = text
    if text.endswith(".json"):
        rule, remedy = "a form that ends in .json must be a file", "check its path"
        require(Path(text).is_file(), rule, text, remedy)
        described = Path(text).read_text(encoding="utf-8")
    try:
        found = json.loads(described)
    except RecursionError as error:
        raise ValueError("a JSON Schema must have less inside each other; nest less.") from error
    except ValueError as error:
        if described is not text:
            raise ValueError(f"{text} must be JSON, got {error}; mend it.") from error
        return text
    return found if isinstance(found, dict) else text


class _Reader:
    def __init__(self, root: Any):
        self.root = root

    def read(self, schema: Any, name: str, above: tuple[str, ...]) -> str:
        """The expression of one schema; `above` are the references it was reached by."""
        rule, remedy = f"{name} must be an object that says what is valid", "name its type"
        require(isinstance(schema, Mapping) and schema, rule, schema, remedy)
        schema = {word: value for word, value in schema.items() if word not in WORDS}
        for word in ("$ref", "const", "enum", "anyOf", "oneOf"):
            if word in schema:
                rule = f"{name}: {word} must stand alone"
                others = set(schema) - {word} - ({"type"} if word in ("enum", "const") else set())
                require(not others, rule, sorted(others), "leave the rest out")
                return self._alone(word, schema[word], name, above)
        kind = schema.pop("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            return _any([self.read(schema | {"type": k}, name, above) for k in kind])
        makers = {
            "object": self._object,
            "array": self._array,
            "string": _string,
            "integer": _integer,
            "number": lambda *_: NUMBER,
            "boolean": lambda *_: "(?:true|false)",
            "null": lambda *_: "null",
        }
        rule = f"{name}'s type must be one of {', '.join(makers)}"
        require(isinstance(kind, str) and kind in makers, rule, kind, "name it")
        _only(name, schema, KNOWN.get(kind, ()))
        made = makers[kind](schema, name, above)
        rule = f"{name}'s expression must have at most {LONGEST:,} letters"
        remedy = "nest fewer arrays, or list fewer properties that may be left out"
        require(len(made) <= LONGEST, rule, len(made), remedy)
        return made

    def _alone(self, word: str, value: Any, name: str, above: tuple[str, ...]) -> str:
        if word == "$ref":
            rule, remedy = (
                f"{name} must not contain itself",
                "say how deep it goes, schema by schema",
            )
            require(value not in above, rule, value, remedy)
            return self.read(self._find(value), value, (*above, value))
        if word == "const":
            return _literal(value, name)
        rule, remedy = f"{name}: {word} must be a list of at least one", "list them"
        require(isinstance(value, list) and value, rule, value, remedy)
        if word == "enum":
            return _any([_literal(part, name) for part in value])
        # One of several, where only one may hold, is not regular arithmetic that we do.
        rule, remedy = f"{name}: oneOf counts how many hold", "write anyOf"
        require(word == "anyOf", rule, word, remedy)
        return _any([self.read(part, f"{name}.{at}", above) for at, part in enumerate(value)])

    def _find(self, reference: Any) -> Any:
        rule, remedy = "a $ref must lead into the schema, as '#/$defs/name'", "define it there"
        require(isinstance(reference, str) and reference.startswith("#"), rule, reference, remedy)
        found = self.root
        for part in reference.removeprefix("#").split("/")[1:]:
            require(isinstance(found, Mapping) and part in found, rule, reference, remedy)
            found = found[part]
        return found

    def _object(self, schema: Mapping[str, Any], name: str, above: tuple[str, ...]) -> str:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        rule = f"{name}: properties must be an object, and required a list of their names"
        right = isinstance(properties, Mapping) and isinstance(required, list)
        require(right, rule, (properties, required), "write them so")
        missing = sorted(set(required) - set(properties))
        require(not missing, f"{name}: what is required must be described", missing, "describe it")
        more = schema.get("additionalProperties", False)
        rule = f"{name}: additionalProperties has no place in an expression"
        require(isinstance(more, bool), rule, more, "leave it out: others are not written")
        members = [
            (
                _literal(key, name) + f":{SPACE}" + self.read(part, f"{name}.{key}", above),
                key in required,
            )
            for key, part in properties.items()
        ]
        return r"\{" + _members(members, False) + r"\}"

    def _array(self, schema: Mapping[str, Any], name: str, above: tuple[str, ...]) -> str:
        rule, remedy = f"{name} must say what its items are", "add items"
        require("items" in schema, rule, "an array without items", remedy)
        item = self.read(schema["items"], f"{name}.items", above)
        least, most = _bounds(name, schema, "minItems", "maxItems")
        if most == 0:
            return r"\[\]"
        after = f"{{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
        some = f"{item}(?:,{SPACE}{item}){after}"
        return rf"\[{some}\]" if least else rf"\[(?:{some})?\]"


KNOWN = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
    "string": ("pattern", "minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
}
"""The words that are understood for each type."""


def _only(name: str, schema: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(schema) - set(known))
    rule = f"{name} must be described by {', '.join(('type', *known))}"
    require(not unknown, rule, unknown, "leave it out, or write an expression")


def _literal(value: Any, name: str) -> str:
    """One value, as JSON writes it; Python's own writer also has words for what JSON has not."""
    try:
        return re.escape(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError) as error:
        rule = f"{name}: values must be JSON's"
        raise ValueError(f"{rule}, got {value!r} ({error}); take it out.") from error


def _any(parts: list[str]) -> str:
    return f"(?:{'|'.join(parts)})"


def _members(members: list[tuple[str, bool]], begun: bool) -> str:
    """The properties of an object from here on; a comma stands before all but the first."""
    if not members:
        return ""
    (text, required), rest = members[0], members[1:]
    if begun:
        here = f",{SPACE}{text}"
        return (here if required else f"(?:{here})?") + _members(rest, True)
    here = text + _members(rest, True)
    return here if required else f"(?:{here}|{_members(rest, False)})"


def _bounds(name: str, schema: Mapping[str, Any], low: str, high: str) -> tuple[int, int | None]:
    least = whole(f"{name}: {low}", schema.get(low, 0), at_least=0)
    most = schema.get(high)
    return least, None if most is None else whole(f"{name}: {high}", most, at_least=least)


def _string(schema: Mapping[str, Any], name: str, above: tuple[str, ...]) -> str:
    least, most = _bounds(name, schema, "minLength", "maxLength")
    if "pattern" not in schema:
        return f'"{CHARACTER}{{{least},{"" if most is None else most}}}"'
    rule, remedy = f"{name}: a pattern says the length too", "leave the other words out"
    require(len(schema) == 1, rule, sorted(schema), remedy)
    pattern = schema["pattern"]
    rule, remedy = f"{name}: a pattern must be for all of the string", "write ^...$"
    right = isinstance(pattern, str) and pattern.startswith("^") and pattern.endswith("$")
    require(right, rule, pattern, remedy)
    inside = pattern[1:-1]
    automaton = byte_automaton(inside)
    escaped = [b for b in (*range(32), *b'"\\')]
    steps = automaton.table[:, automaton.byte_class[escaped]]
    rule = f"{name}: a pattern must not match quotes, backslashes and control characters"
    require(bool((steps == automaton.dead).all()), rule, pattern, "name the characters it may")
    return f'"(?:{inside})"'


def _integer(schema: Mapping[str, Any], name: str, above: tuple[str, ...]) -> str:
    if not schema:
        return INTEGER
    rule, remedy = f"{name} must have minimum and maximum, or neither", "give both"
    require(len(schema) == 2, rule, dict(schema), remedy)
    least = whole(f"{name}: minimum", schema["minimum"], at_least=-(10**9))
    most = whole(f"{name}: maximum", schema["maximum"], at_least=least)
    rule = f"{name}: minimum and maximum must be less than {LARGEST} apart"
    require(most - least < LARGEST, rule, (least, most), "widen them, or write a pattern")
    return _any([str(number) for number in range(least, most + 1)])
