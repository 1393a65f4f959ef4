"""The two callbacks that return an answer, as the ports through which `clarify` and approvals ask (J8).

They run in a worker thread, so that one that waits for a person holds up nothing else. One that raises is logged, and
counts as nobody being there.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, get_args

from perdure.core.errors import ToolError
from perdure.core.foreign import await_foreign
from perdure.core.ports import ApprovalAnswer, ApprovalRequest

_LOG = logging.getLogger(__name__)


class CallbackAsker:
    """The Asker port over a `clarify_callback`."""

    def __init__(self, callback: Callable[[str, Sequence[str]], Any]) -> None:
        self._callback = callback

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        """The answer. Raises ToolError, which the model reads, where the callback fails."""
        try:
            return str(await await_foreign(_called(self._callback, question, tuple(choices))))
        except Exception as error:  # anybody's code: a turn goes on without it
            _LOG.exception("clarify_callback failed")
            raise ToolError(f"the question could not be put: {type(error).__name__}") from error


class CallbackApprover:
    """The Approver port over an `approval_callback`; a plain yes is for this once."""

    def __init__(self, callback: Callable[[str, str], Any]) -> None:
        self._callback = callback

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """What the callback says; whatever is no answer is a no."""
        try:
            answer = await await_foreign(_called(self._callback, request.action, request.reason))
        except Exception:  # anybody's code: what nobody allowed does not run
            _LOG.exception("approval_callback failed")
            return "no"
        if answer is True:
            return "once"
        return next((known for known in get_args(ApprovalAnswer) if known == answer), "no")


async def _called(callback: Callable[..., Any], *arguments: Any) -> Any:
    answer = await asyncio.to_thread(callback, *arguments)
    return await answer if inspect.isawaitable(answer) else answer
