"""`clarify`: a question to the person, with answers to choose from."""

from __future__ import annotations

from typing import Annotated

from perdure.core.errors import ToolError
from perdure.core.ports import Asker
from perdure.tools.tool import Tool, tool_from_function


class ClarifyTool:
    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def tool(self) -> Tool:
        return tool_from_function(
            self.clarify, name="clarify", toolset="clarify", is_interactive=True, timeout_s=24 * 3_600.0
        )

    async def clarify(
        self,
        question: Annotated[str, "one question, short"],
        choices: Annotated[list[str] | None, "answers to choose from; the person may still type their own"] = None,
    ) -> str:
        """Asks the person something you cannot find out yourself, and waits for the answer."""
        if not question.strip():
            raise ToolError("the question is empty")
        answer = await self._asker.ask(question.strip(), tuple(choices or ()))
        return answer.strip() or "(the person gave no answer; go on with your best judgement)"
