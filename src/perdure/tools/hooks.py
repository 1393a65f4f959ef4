"""Hooks around every tool call: plug-ins see it before it runs and after, and may stop it or change its result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.core.foreign import call_foreign
from perdure.core.messages import ToolCall
from perdure.tools.tool import ToolReply

# Before: None lets the call run, a text stops it and is what the model reads.
PreToolCall = Callable[[ToolCall, Mapping[str, Any]], str | None]
# After: None keeps the reply, a reply takes its place.
PostToolCall = Callable[[ToolCall, ToolReply], ToolReply | None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hooks:
    """In the order they were added. One that raises is logged and passed over: it never breaks a turn."""

    pre_tool_call: list[PreToolCall] = field(default_factory=list)
    post_tool_call: list[PostToolCall] = field(default_factory=list)

    def stop_reason(self, call: ToolCall, arguments: Mapping[str, Any]) -> str | None:
        """Why the call must not run, or None."""
        for hook in self.pre_tool_call:
            try:
                reason = call_foreign(hook, call, arguments)
            except Exception:  # somebody else's code: the turn must survive it
                _log.exception("pre_tool_call hook %r failed on %s", hook, call.name)
                continue
            if reason is not None:
                return reason
        return None

    def reviewed(self, call: ToolCall, reply: ToolReply) -> ToolReply:
        """The reply after every hook has seen it."""
        for hook in self.post_tool_call:
            try:
                changed = call_foreign(hook, call, reply)
            except Exception:  # somebody else's code: the turn must survive it
                _log.exception("post_tool_call hook %r failed on %s", hook, call.name)
                continue
            if isinstance(changed, ToolReply):
                reply = changed
            elif changed is not None:
                _log.error("post_tool_call hook %r returned %s, not a ToolReply", hook, type(changed).__name__)
        return reply
