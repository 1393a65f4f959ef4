"""Tools from typed functions, argument validation, and lookup with suggestions."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest

from perdure.core.errors import ToolError
from perdure.tools.tool import Tool, ToolContext, ToolRegistry, tool, tool_from_function, validate_arguments


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


def test_schema_comes_from_types_defaults_and_docstring() -> None:
    built = tool_from_function(search)
    assert built.description == "Finds text in files."
    properties = built.parameters["properties"]
    assert built.parameters["required"] == ["pattern"]
    assert properties["pattern"] == {"type": "string", "description": "what to look for, as a regular expression"}
    assert properties["folder"]["description"] == "where to look"
    assert properties["limit"] == {"type": "integer", "default": 10, "description": "most results"}
    assert properties["kind"]["enum"] == ["content", "names"]
    assert "title" not in str(built.schema)


def test_context_parameter_is_not_in_the_schema() -> None:
    @tool(toolset="test", is_read_only=True)
    def peek(path: str, context: ToolContext) -> str:
        "Looks."
        return path

    assert peek.context_parameter == "context"
    assert list(peek.parameters["properties"]) == ["path"]
    assert peek.is_read_only


def test_parameters_may_have_names_reserved_by_pydantic() -> None:
    def odd(schema: str, copy: int = 1, json: bool = False) -> None: ...

    built = tool_from_function(odd)
    assert built.arguments is not None
    assert built.arguments.validate("odd", {"schema": "s"}) == {"schema": "s", "copy": 1, "json": False}


def test_star_parameters_are_rejected() -> None:
    def bad(*paths: str) -> None: ...

    with pytest.raises(ValueError, match="'paths' must be an ordinary named parameter"):
        tool_from_function(bad)


@pytest.mark.spec("J6")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "`pattern` is missing"),
        ({"patern": "x"}, "`patern` is not an argument (did you mean `pattern`?)"),
        ({"pattern": "x", "limit": "many"}, "`limit`: input should be a valid integer"),
        ({"pattern": "x", "limit": "many"}, 'but got "many"'),
        ({"pattern": "x", "kind": "both"}, "`kind`: input should be 'content' or 'names'"),
        ({"pattern": ["x"]}, "`pattern`: input should be a valid string"),
    ],
)
def test_invalid_argument_is_named_with_the_expected_type(arguments: dict[str, object], says: str) -> None:
    built = tool_from_function(search)
    assert built.arguments is not None
    with pytest.raises(ToolError) as error:
        built.arguments.validate("search", arguments)
    assert says in str(error.value)
    assert 'It takes: pattern: string, folder: string = "."' in str(error.value)


def test_json_text_and_numeric_strings_are_coerced() -> None:
    built = tool_from_function(search)
    assert built.arguments is not None
    values = built.arguments.validate("search", {"pattern": "x", "globs": '["*.py"]', "limit": "5"})
    assert values["globs"] == ["*.py"]
    assert values["limit"] == 5


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "mode": {"enum": ["a", "b"]}, "x": {"type": ["string", "null"]}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "`n` is missing"),
        ({"n": True}, "`n` should be integer, but got true"),
        ({"n": 1, "mode": "c"}, '`mode` should be one of "a", "b", but got "c"'),
        ({"n": 1, "z": 0}, "`z` is not an argument"),
        ({"n": 1, "x": 3}, "`x` should be string or null, but got 3"),
    ],
)
def test_explicit_schema_is_validated(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ToolError, match="bad arguments for t") as error:
        validate_arguments("t", SCHEMA, arguments)
    assert says in str(error.value)


def test_explicit_schema_accepts_valid_arguments() -> None:
    assert validate_arguments("t", SCHEMA, {"n": 1, "x": None}) == {"n": 1, "x": None}


def test_unknown_tool_gets_a_suggestion_or_the_list() -> None:
    registry = ToolRegistry([search])
    with pytest.raises(ToolError, match="there is no tool 'serach'; did you mean 'search'"):
        registry.find("serach")
    with pytest.raises(ToolError, match="there is no tool 'zzz'; available: search"):
        registry.find("zzz")


def test_disabled_toolset_is_hidden() -> None:
    registry = ToolRegistry([tool_from_function(search, toolset="files")])
    registry.switch_off("files")
    assert registry.schemas() == []
    assert "search" not in registry
    with pytest.raises(ToolError, match="'search' is disabled here"):
        registry.find("search")
    registry.switch_on("files")
    assert [s["function"]["name"] for s in registry.schemas()] == ["search"]
    assert registry.toolsets() == {"files": True}


def test_later_tool_of_the_same_name_wins() -> None:
    mine = Tool("search", "mine", {"type": "object"}, handler=lambda: "mine")
    assert ToolRegistry([search, mine]).find("search").description == "mine"


def test_invalid_tool_name_is_rejected() -> None:
    with pytest.raises(ValueError, match="tool name 'a b'"):
        Tool("a b", "", {}, handler=print)


@pytest.mark.spec("O6")
@pytest.mark.parametrize("name", ["QQQQ", "", "x" * 5_000])
def test_a_wrong_name_among_thousands_of_tools_lists_five(name: str) -> None:
    tools = [Tool(f"svc__operation_{n}", "Does it.", {"type": "object"}, str) for n in range(1_500)]
    registry = ToolRegistry([*tools, Tool("find_tools", "Finds tools.", {"type": "object"}, str)])
    with pytest.raises(
        ToolError, match=r"the nearest of 1,501 are: (?:\w+, ){4}\w+; find_tools finds others"
    ) as caught:
        registry.find(name)
    assert len(str(caught.value)) < 400
