"""`delegate_task`: a helper with a context and a budget of its own; only its report comes back."""

from __future__ import annotations

import asyncio
from typing import Annotated

from perdure.core.errors import ToolError
from perdure.core.ports import Spawner
from perdure.tools.tool import Tool, tool_from_function

MAX_PARALLEL = 8


class DelegateTool:
    def __init__(self, spawner: Spawner, *, max_iterations: int) -> None:
        self._spawner = spawner
        self._max_iterations = max_iterations

    def tool(self) -> Tool:
        return tool_from_function(
            self.delegate_task, name="delegate_task", toolset="delegation", timeout_s=24 * 3_600.0
        )

    async def delegate_task(
        self,
        tasks: Annotated[list[str], "what to do, one entry per helper; they run side by side and see nothing else"],
        context: Annotated[str, "what every helper must know: files, findings, constraints"] = "",
    ) -> str:
        """Hands work to helpers with a fresh context each. Their reports come back; their steps do not fill yours."""
        wanted = [t.strip() for t in tasks if t.strip()]
        if not wanted:
            raise ToolError("`tasks` is empty; say what the helper is to do")
        if len(wanted) > MAX_PARALLEL:
            raise ToolError(f"at most {MAX_PARALLEL} helpers at once, and this asks for {len(wanted)}")
        reports = await asyncio.gather(
            *(self._spawner.spawn(t, context=context, max_iterations=self._max_iterations) for t in wanted),
            return_exceptions=True,
        )
        return "\n\n".join(_shown(n, len(wanted), r) for n, r in enumerate(reports, 1))


def _shown(number: int, total: int, report: str | BaseException) -> str:
    if isinstance(report, asyncio.CancelledError):
        raise report
    text = f"failed: {report}" if isinstance(report, BaseException) else report
    return text if total == 1 else f"## Report {number} of {total}\n{text}"
