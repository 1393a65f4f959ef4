"""`todo`: the plan of the present work. It lives beside the conversation, so that no compaction can lose it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from perdure.core.errors import ToolError
from perdure.tools.tool import Tool, ToolContext, tool_from_function

_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}
MAX_ITEMS = 100


class TodoItem(BaseModel):
    """One step of the plan."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=500)
    status: Literal["pending", "in_progress", "completed", "cancelled"] = "pending"


class Plans(Protocol):
    """Where a conversation's plan is kept."""

    def load(self, conversation_id: str) -> Sequence[Any]:
        """The items as plain dicts; empty where there is no plan."""
        ...

    def save(self, conversation_id: str, items: Sequence[Any]) -> None:
        """Persisted when this returns."""
        ...


class TodoTool:
    def __init__(self, plans: Plans) -> None:
        self._plans = plans

    def tool(self) -> Tool:
        return tool_from_function(self.todo, name="todo", toolset="planning")

    def todo(
        self,
        context: ToolContext,
        items: Annotated[list[TodoItem] | None, "the whole new plan, in order; leave out to read it"] = None,
    ) -> str:
        """Keeps the plan of the present work. Send the whole list each time; at most one step in progress."""
        if items is None:
            return render_plan(self._plans.load(context.conversation_id))
        if len(items) > MAX_ITEMS:
            raise ToolError(f"a plan may have {MAX_ITEMS} steps, and this has {len(items)}")
        if sum(i.status == "in_progress" for i in items) > 1:
            raise ToolError("only one step may be in progress at a time")
        kept = [i.model_dump() for i in items]
        self._plans.save(context.conversation_id, kept)
        return render_plan(kept)


def render_plan(items: Sequence[Any]) -> str:
    """The plan as a person reads it."""
    lines = [f"{n}. {_MARKS.get(i['status'], '[ ]')} {i['text']}" for n, i in enumerate(items, 1)]
    return "\n".join(lines) or "There is no plan yet."
