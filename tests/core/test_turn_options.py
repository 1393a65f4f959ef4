"""Options of a turn: how they are stored, and how an answer is checked against a schema."""

from __future__ import annotations

import time
from typing import Any

import pytest

from perdure.core.json_schema import schema_problem
from perdure.core.messages import tool_result
from perdure.core.turn_options import NO_OPTIONS, AnswerFormat, TurnOptions

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
        ({"type": "object"}, [], "answer must be of type object, not array"),
        ({"type": "integer"}, True, "answer must be of type integer, not boolean"),
        ({"type": "integer"}, 3.0, None),
        ({"type": ["string", "null"]}, None, None),
        ({"type": "number", "minimum": 1}, 0.5, "answer must be at least 1"),
        ({"type": "string", "maxLength": 2}, "abc", "the length of answer must be at most 2"),
        ({"enum": [1, "a"]}, "b", 'answer must be one of [1, "a"]'),
        ({"const": 1}, True, "answer must be 1"),
        ({"required": ["a"]}, {"b": 1}, "answer.a is missing"),
        ({"properties": {"a": {"type": "string"}}}, {"a": 1}, "answer.a must be of type string, not integer"),
        ({"additionalProperties": False}, {"a": 1}, "answer.a is not allowed"),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, "answer.a must be of type string, not integer"),
        ({"items": {"type": "string"}}, ["a", 1], "answer[1] must be of type string, not integer"),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], "answer[1] is not allowed"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, None),
        ({"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, "answer.b is missing"),
        (TREE, {"value": 1, "children": [{"value": 2}, {"value": "x"}]}, "answer.children[1].value must be of type"),
        (TREE, {"value": 1, "children": [{"value": 2, "children": []}]}, None),
        ({"$ref": "#/$defs/none"}, 1, None),
        ({"type": "odd", "required": 7, "properties": [], "enum": {}}, {"a": 1}, None),
    ],
)
def test_a_value_is_checked_against_a_schema(schema: dict[str, Any], value: Any, problem: str | None) -> None:
    reason = schema_problem(value, schema)
    assert reason is None if problem is None else (reason or "").startswith(problem)


def test_no_alternative_fits() -> None:
    assert "fits none" in (schema_problem(1, {"anyOf": [{"type": "string"}, {"type": "null"}]}) or "")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 9}}, "$ref": "#/$defs/a"},
        {"items": {"pattern": "^(a+)+$"}},
    ],
)
def test_a_hostile_schema_is_checked_in_bounded_time(schema: dict[str, Any]) -> None:
    value: Any = ["a" * 40 + "!"]
    for _ in range(50):
        value = [value]
    began = time.monotonic()
    schema_problem(value, schema)
    assert time.monotonic() - began < 20


def test_options_survive_being_stored() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    options = TurnOptions(
        tools=(tool,),
        tool_choice="f",
        allows_parallel_calls=False,
        answer_format=AnswerFormat({"type": "object"}, "thing", True),
        max_tokens=7,
        temperature=0.0,
        results=(tool_result("call_1", "x"),),
    )
    assert TurnOptions.from_dict(options.to_dict()) == options
    assert NO_OPTIONS.to_dict() == {}
    assert TurnOptions.from_dict({}) == NO_OPTIONS


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
    assert AnswerFormat().parse(text)[0] == answer
