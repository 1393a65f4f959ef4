"""Options of a turn survive being stored."""

from __future__ import annotations

from perdure.core.messages import tool_result
from perdure.core.turn_options import NO_OPTIONS, AnswerFormat, TurnOptions


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
