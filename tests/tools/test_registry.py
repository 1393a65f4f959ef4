"""Typed functions become tools; names and arguments that miss are answered with what was meant."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest

from perdure.core.errors import ToolError
from perdure.tools.registry import ToolRegistry
from perdure.tools.tool import Tool, ToolContext, tool, tool_from_function, validate_arguments


def search(
    pattern: str,
    folder: Annotated[str, "where to look"] = ".",
    limit: int = 10,
    kind: Literal["content", "names"] = "content",
    globs: list[str] | None = None,
) -> str:
    """Finds text in files.

    Args:
        pattern: what to look for,
            as a regular expression
        limit (int): most results
    """
    return f"{pattern} {folder} {limit} {kind} {globs}"


def test_the_schema_comes_from_types_defaults_and_docstring() -> None:
    made = tool_from_function(search)
    assert made.description == "Finds text in files."
    properties = made.parameters["properties"]
    assert made.parameters["required"] == ["pattern"]
    assert properties["pattern"] == {"type": "string", "description": "what to look for, as a regular expression"}
    assert properties["folder"]["description"] == "where to look"
    assert properties["limit"] == {"type": "integer", "default": 10, "description": "most results"}
    assert properties["kind"]["enum"] == ["content", "names"]
    assert "title" not in str(made.schema)


def test_a_parameter_typed_as_context_is_not_shown_to_the_model() -> None:
    @tool(toolset="test", is_read_only=True)
    def peek(path: str, context: ToolContext) -> str:
        "Looks."
        return path

    assert peek.context_parameter == "context"
    assert list(peek.parameters["properties"]) == ["path"]
    assert peek.is_read_only


def test_parameters_may_bear_names_that_models_reserve() -> None:
    def odd(schema: str, copy: int = 1, json: bool = False) -> None: ...

    made = tool_from_function(odd)
    assert made.arguments is not None
    assert made.arguments.validate("odd", {"schema": "s"}) == {"schema": "s", "copy": 1, "json": False}


def test_star_parameters_are_refused_when_the_tool_is_made() -> None:
    def bad(*paths: str) -> None: ...

    with pytest.raises(ValueError, match="'paths' must be an ordinary named parameter"):
        tool_from_function(bad)


@pytest.mark.spec("J6")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "`pattern` is missing"),
        ({"patern": "x"}, "`patern` is not an argument (did you mean `pattern`?)"),
        ({"pattern": "x", "limit": "many"}, "`limit`: input should be a valid integer"),
        ({"pattern": "x", "limit": "many"}, 'but got "many"'),
        ({"pattern": "x", "kind": "both"}, "`kind`: input should be 'content' or 'names'"),
        ({"pattern": ["x"]}, "`pattern`: input should be a valid string"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(given: dict[str, object], says: str) -> None:
    made = tool_from_function(search)
    assert made.arguments is not None
    with pytest.raises(ToolError) as error:
        made.arguments.validate("search", given)
    assert says in str(error.value)
    assert 'It takes: pattern: string, folder: string = "."' in str(error.value)


def test_a_list_sent_as_its_json_text_and_a_number_as_text_are_taken() -> None:
    made = tool_from_function(search)
    assert made.arguments is not None
    values = made.arguments.validate("search", {"pattern": "x", "globs": '["*.py"]', "limit": "5"})
    assert values["globs"] == ["*.py"]
    assert values["limit"] == 5


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "mode": {"enum": ["a", "b"]}, "x": {"type": ["string", "null"]}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "`n` is missing"),
        ({"n": True}, "`n` should be integer, but got true"),
        ({"n": 1, "mode": "c"}, '`mode` should be one of "a", "b", but got "c"'),
        ({"n": 1, "z": 0}, "`z` is not an argument"),
        ({"n": 1, "x": 3}, "`x` should be string or null, but got 3"),
    ],
)
def test_explicit_schemas_are_checked_as_well(given: dict[str, object], says: str) -> None:
    with pytest.raises(ToolError, match="bad arguments for t") as error:
        validate_arguments("t", SCHEMA, given)
    assert says in str(error.value)


def test_explicit_schemas_let_right_arguments_pass() -> None:
    assert validate_arguments("t", SCHEMA, {"n": 1, "x": None}) == {"n": 1, "x": None}


def test_a_near_miss_gets_a_did_you_mean_and_others_the_list() -> None:
    registry = ToolRegistry([search])
    with pytest.raises(ToolError, match="there is no tool 'serach'; did you mean 'search'"):
        registry.find("serach")
    with pytest.raises(ToolError, match="there is no tool 'zzz'; available: search"):
        registry.find("zzz")


def test_a_toolset_that_is_off_is_neither_offered_nor_found() -> None:
    registry = ToolRegistry([tool_from_function(search, toolset="files")])
    registry.switch_off("files")
    assert registry.schemas() == []
    assert "search" not in registry
    with pytest.raises(ToolError, match="'search' is disabled here"):
        registry.find("search")
    registry.switch_on("files")
    assert [s["function"]["name"] for s in registry.schemas()] == ["search"]
    assert registry.toolsets() == {"files": True}


def test_a_later_tool_of_the_same_name_wins() -> None:
    mine = Tool("search", "mine", {"type": "object"}, handler=lambda: "mine")
    assert ToolRegistry([search, mine]).find("search").description == "mine"


def test_a_bad_tool_name_is_refused() -> None:
    with pytest.raises(ValueError, match="tool name 'a b'"):
        Tool("a b", "", {}, handler=print)
