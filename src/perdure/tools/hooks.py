"""Plug-in hooks around tool calls and compactions; one that raises is logged and skipped."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from perdure.core.concurrency import call_foreign, call_with_timeout, describe_object
from perdure.core.messages import ToolCall
from perdure.tools.tool import ToolReply, to_reply

# Return None to let the call run, or a reason to refuse it: the model reads the reason.
PreToolCall = Callable[[ToolCall, Mapping[str, Any]], str | None]
# Return None to keep the reply, or a replacement.
PostToolCall = Callable[[ToolCall, ToolReply], ToolReply | None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionContext:
    """The argument of `pre_compact` hooks: the compaction that is about to be planned."""

    conversation_id: str
    session_id: str
    # Why it is planned: threshold, preflight, cold, overflow, user or background.
    reason: str
    messages: int
    tokens: int
    # The topic that the user named, if any.
    focus: str | None = None


@dataclass(frozen=True, slots=True)
class StoredCompaction:
    """The argument of `post_compact` hooks: a compaction that was stored."""

    conversation_id: str
    # The session that continues, and the one before it.
    session_id: str
    previous_id: str
    reason: str
    outcome: str
    before_tokens: int
    after_tokens: int
    # The text of the new handoff.
    handoff: str


# Return None, or a topic that the handoff keeps in full detail. The user's own topic goes first.
PreCompact = Callable[[CompactionContext], str | Awaitable[str | None] | None]
PostCompact = Callable[[StoredCompaction], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks around tool calls and compactions, run in the order they were added."""

    pre_tool_call: list[PreToolCall] = field(default_factory=list)
    post_tool_call: list[PostToolCall] = field(default_factory=list)
    # Called in a worker thread; for one that is prepared in the background, when its preparation begins.
    pre_compact: list[PreCompact] = field(default_factory=list)
    post_compact: list[PostCompact] = field(default_factory=list)
    # Timeout of a hook around a compaction, for which the conversation waits.
    compaction_limit_s: float = 30.0

    def stop_reason(self, call: ToolCall, arguments: Mapping[str, Any]) -> str | None:
        """Run the pre-call hooks; return the reason if one forbids the call, else None."""
        for hook in self.pre_tool_call:
            try:
                reason = call_foreign(hook, call, arguments)
            except Exception:  # plug-in code: the turn must survive it
                _log.exception("pre_tool_call hook %s failed on %s", describe_object(hook), call.name)
                continue
            if reason is not None:
                return reason
        return None

    def apply_post_hooks(self, call: ToolCall, reply: ToolReply) -> ToolReply:
        """Run the post hooks and return the reply, or its replacement."""
        for hook in self.post_tool_call:
            try:
                changed = call_foreign(hook, call, reply)
                replacement = call_foreign(to_reply, changed) if isinstance(changed, ToolReply) else None
            except Exception:  # plug-in code: the turn must survive it
                _log.exception("post_tool_call hook %s failed on %s", describe_object(hook), call.name)
                continue
            if replacement is not None:
                reply = replacement
            elif changed is not None:
                kind = type(changed).__name__
                _log.error("post_tool_call hook %s returned %s, not a ToolReply", describe_object(hook), kind)
        return reply

    def compaction_focus(self, context: CompactionContext) -> str | None:
        """Run the hooks before a compaction and return its topic: the user's, and those of the hooks."""
        topics = [context.focus] if context.focus else []
        for hook in self.pre_compact:
            try:
                topic = call_with_timeout(partial(hook, context), self.compaction_limit_s)
            except Exception:  # plug-in code: the compaction must survive it
                _log.exception("pre_compact hook %s failed", describe_object(hook))
                continue
            if isinstance(topic, str) and topic.strip():
                topics.append(topic.strip())
            elif topic is not None and not isinstance(topic, str):
                _log.error("pre_compact hook %s returned %s, not a text", describe_object(hook), type(topic).__name__)
        return "; ".join(topics) or None

    def apply_post_compact(self, outcome: StoredCompaction) -> None:
        """Run the hooks after a compaction was stored."""
        for hook in self.post_compact:
            try:
                call_with_timeout(partial(hook, outcome), self.compaction_limit_s)
            except Exception:  # plug-in code: the conversation must survive it
                _log.exception("post_compact hook %s failed", describe_object(hook))
