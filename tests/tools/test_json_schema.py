"""Values are checked against schemas, and schemas themselves: with every keyword, and in bounded time."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest

from perdure.core.errors import ToolError
from perdure.core.turn_options import AnswerFormat
from perdure.tools.json_schema import SchemaUndecided, find_schema_error, parse_answer, schema_problem
from perdure.tools.tool import validate_arguments

TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "object"}, {}, None),
        ({"type": "object"}, [], "answer: [] is not of type 'object'"),
        ({"type": "integer"}, True, "answer: True is not of type 'integer'"),
        ({"type": "integer"}, 3.0, None),
        ({"type": ["string", "null"]}, None, None),
        ({"type": "number", "minimum": 1}, 0.5, "answer: 0.5 is less than the minimum of 1"),
        ({"type": "string", "maxLength": 2}, "abc", "answer: 'abc' is too long"),
        ({"enum": [1, "a"]}, "b", "answer: 'b' is not one of [1, 'a']"),
        ({"const": 1}, True, "answer: 1 was expected"),
        ({"required": ["a"]}, {"b": 1}, "answer: 'a' is a required property"),
        ({"properties": {"a": {"type": "string"}}}, {"a": 1}, "answer.a: 1 is not of type 'string'"),
        ({"additionalProperties": False}, {"a": 1}, "answer: Additional properties are not allowed"),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, "answer.a: 1 is not of type 'string'"),
        ({"items": {"type": "string"}}, ["a", 1], "answer[1]: 1 is not of type 'string'"),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], "answer: Expected at most 1 item"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, None),
        ({"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, "answer: 'b' is a required property"),
        (
            TREE,
            {"value": 1, "children": [{"value": 2}, {"value": "x"}]},
            "answer.children[1].value: 'x' is not of type 'integer'",
        ),
        (TREE, {"value": 1, "children": [{"value": 2, "children": []}]}, None),
        ({"not": {"type": "string"}}, "x", "answer: 'x' should not be valid"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 3, "answer: 3 is valid under each of"),
        (
            {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
            {"a": 1},
            "answer: 'b' is a required",
        ),
        ({"if": {"required": ["a"]}, "else": {"required": ["b"]}}, {}, "answer: 'b' is a required property"),
        ({"minProperties": 1}, {}, "answer: {} should be non-empty"),
        ({"uniqueItems": True}, [{"a": 1}, {"a": 1.0}], "answer: the items are not unique"),
        ({"uniqueItems": True}, [1, True, "1"], None),
        ({"patternProperties": {"^n_": {"type": "integer"}}}, {"n_a": "x"}, "answer.n_a: 'x' is not of type 'integer'"),
        ({"patternProperties": {"^n_": {}}, "additionalProperties": False}, {"m": 1}, "answer: 'm' does not match any"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "answer: 'b' is a dependency of 'a'"),
        ({"contains": {"type": "string"}}, [1], "answer: [1] does not contain items matching"),
        ({"multipleOf": 0.5}, 0.7, "answer: 0.7 is not a multiple of 0.5"),
        ({"exclusiveMinimum": 3}, 3, "answer: 3 is less than or equal to the minimum of 3"),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}, "answer: Unevaluated properties"),
        ({"pattern": "^[a-z]+$"}, "A1", "answer: 'A1' does not match"),
        # Earlier drafts, which clients seldom name.
        ({"items": [{"type": "string"}]}, [1], "answer[0]: 1 is not of type 'string'"),
        ({"minimum": 3, "exclusiveMinimum": True}, 3, "answer: 3 is less than or equal to the minimum of 3"),
    ],
)
def test_a_value_is_checked_against_a_schema(schema: dict[str, Any], value: Any, problem: str | None) -> None:
    reason = schema_problem(value, schema)
    assert reason is None if problem is None else (reason or "").startswith(problem)


def test_no_alternative_fits() -> None:
    assert schema_problem(1, {"anyOf": [{"type": "string"}, {"type": "null"}]}) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 9}}, "$ref": "#/$defs/a"},
        {"items": {"pattern": "^(a+)+$"}},
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {
            "$defs": {"d40": {"type": "integer"}}
            | {f"d{i}": {"oneOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)},
            "$ref": "#/$defs/d0",
        },
    ],
)
def test_a_hostile_schema_is_checked_in_bounded_time(schema: dict[str, Any]) -> None:
    value: Any = ["a" * 40 + "!"]
    for _ in range(50):
        value = [value]
    began = time.monotonic()
    with suppress(SchemaUndecided):
        schema_problem(value, schema)
    if "patternProperties" in schema:
        schema_problem({"a" * 40 + "!": 1}, schema)
    assert time.monotonic() - began < 20


ENDLESS = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 9}}, "$ref": "#/$defs/a"}


@pytest.mark.parametrize(
    "schema", [ENDLESS, {"$ref": "#/$defs/none"}, {"type": "odd", "required": 7, "properties": [], "enum": {}}]
)
def test_a_check_without_a_result_rejects_an_answer_and_accepts_arguments(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaUndecided):
        schema_problem({"a": 1}, schema)
    reason = parse_answer(AnswerFormat(schema), '{"a": 1}')[1] or ""
    assert reason.startswith("it could not be checked against the schema: ")
    assert validate_arguments("t", {"allOf": [schema]}, {"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "it is nested too deeply"),
        ('{"n": ' + "7" * 5_000 + "}", "it has an integer of more than 4,300 digits"),
    ],
)
def test_an_answer_too_large_to_parse_is_rejected_in_plain_words(text: str, reason: str) -> None:
    assert parse_answer(AnswerFormat(), text)[1] == reason


def test_many_items_are_compared_in_linear_time() -> None:
    began = time.monotonic()
    assert schema_problem([{"n": i} for i in range(20_000)], {"uniqueItems": True}) is None
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "strin"}, "p.type: 'strin' is not valid"),
        ({"properties": {"a": {"minimum": "x"}}}, "p.properties.a.minimum: 'x' is not of type 'number'"),
        ({"required": 7}, "p.required: 7 is not of type 'array'"),
        ({"properties": []}, "p.properties: [] is not of type 'object'"),
        ({"items": {"pattern": "("}}, "p.items.pattern: ( is not a valid regular expression"),
        ({"patternProperties": {"[": {}}}, "p.patternProperties: [ is not a valid regular expression"),
        ({"$ref": "#/$defs/none"}, "p.$ref: #/$defs/none refers to nothing in this schema"),
        ({"$ref": "http://127.0.0.1:9/x.json"}, "p.$ref: http://127.0.0.1:9/x.json refers to nothing"),
        ({"$ref": "file:///etc/hostname"}, "p.$ref: file:///etc/hostname refers to nothing"),
        (TREE, None),
        ({"pattern": r"^\p{L}+(?<year>\d{4})$"}, None),
        ({"minimum": 3, "exclusiveMinimum": True}, None),
        ({"properties": {"pattern": {"type": "string"}, "$ref": {"const": {"$ref": "#/no"}}}}, None),
    ],
)
def test_a_broken_schema_is_named_with_its_place(schema: dict[str, Any], problem: str | None) -> None:
    reason = find_schema_error(schema, "p")
    assert reason is None if problem is None else (reason or "").startswith(problem)


def test_arguments_of_tools_are_checked_by_the_same_rules() -> None:
    schema = {"properties": {"names": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}}
    assert validate_arguments("t", schema, {"names": ["a"]}) == {"names": ["a"]}
    for names in (["a", 1], ["a", "a"]):
        with pytest.raises(ToolError, match=r"arguments\.names"):
            validate_arguments("t", schema, {"names": names})


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -Infinity}', "Infinity"])
def test_an_answer_with_a_number_that_json_lacks_is_refused(text: str) -> None:
    assert "not valid JSON" in (parse_answer(AnswerFormat(), text)[1] or "")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('  {"a": 1}\n', '{"a": 1}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('```\n{"a": 1}\n```', '{"a": 1}'),
        ("```python\nprint()\n```", "```python\nprint()\n```"),
    ],
)
def test_a_fence_around_an_answer_is_removed(text: str, answer: str) -> None:
    assert parse_answer(AnswerFormat(), text)[0] == answer


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", ["^(a)?(?(1)(a+)+b|d)", "(?>(a+)+b)", "((a+)+b)?+c", "(?=(a+)+b)a", r"(a+)+\1b"])
def test_a_pattern_that_may_take_exponential_time_is_not_tried(pattern: str) -> None:
    assert schema_problem("a" * 60, {"pattern": pattern}) is None
