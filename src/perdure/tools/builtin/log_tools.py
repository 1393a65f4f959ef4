"""`lcm_grep`, `lcm_describe` and `lcm_expand`: a conversation's whole log, the parts beyond the window included.

The search is that of `session_search`, within the conversation. A description has the offset and the length of each
message or window, so that the next call opens any character of the log, stored outputs included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from perdure.core.errors import NotFound, ToolError
from perdure.core.ports import LogBrowser, LogOutline
from perdure.tools.builtin.agent_tools import PAGE_CHARS, SessionSearch, format_page
from perdure.tools.tool import Tool, ToolContext, ToolReply, tool_from_function

_ITEMS = 100


class LogTools:
    """Tools by which the model lists, searches and reads its stored conversation history, also beyond a compaction.

    Results are paged; each page has the cursor of the next one.
    """

    def __init__(self, search: SessionSearch, log: LogBrowser, *, page_chars: int = PAGE_CHARS) -> None:
        self._search = search
        self._log = log
        self._page_chars = page_chars

    def tools(self) -> Iterator[Tool]:
        for function in (self.lcm_grep, self.lcm_describe, self.lcm_expand):
            yield tool_from_function(function, toolset="log", is_read_only=True, max_result_chars=0)

    def lcm_grep(
        self,
        context: ToolContext,
        query: Annotated[str, 'a question, words, a "phrase" or a prefix*'],
        limit: Annotated[int, "most results"] = 10,
        cursor: Annotated[str, "for more results: as named at the end of the last ones"] = "",
    ) -> ToolReply:
        """Searches this conversation, its earlier windows and stored outputs included."""
        return self._search.find(query, context, here=True, limit=limit, cursor=cursor, with_question=True)

    def lcm_describe(
        self,
        context: ToolContext,
        address: Annotated[str, "m:120-180, w:3, h:57 or output:<id>; without it, all windows"] = "",
        cursor: Annotated[int, "for more items: as named at the end of the last ones"] = 0,
    ) -> ToolReply:
        """Lists the windows of this conversation, or the messages at an address, with their sizes and offsets."""
        try:
            outline = self._log.describe(
                address.strip() or None, conversation_id=context.conversation_id, cursor=cursor, limit=_ITEMS
            )
        except NotFound as error:
            raise ToolError(str(error)) from None
        return ToolReply(_format_outline(outline), source=f"the outline of {outline.address}")

    def lcm_expand(
        self,
        context: ToolContext,
        address: Annotated[str, "m:120-180, w:3, h:57 or output:<id>"],
        cursor: Annotated[int, "first character to show"] = 0,
    ) -> ToolReply:
        """Opens an address in full: messages, calls, and the whole of each stored output in its place."""
        limit = min(self._page_chars, context.max_result_chars)
        try:
            page = self._log.expand(
                address.strip(), conversation_id=context.conversation_id, offset=max(0, cursor), limit=limit
            )
        except NotFound as error:
            raise ToolError(str(error)) from None
        end = page.offset + len(page.text)
        source = f"{page.address} (characters {page.offset:,}-{end:,})"
        return ToolReply(format_page(page, argument="cursor"), source=source)


def _format_outline(outline: LogOutline) -> str:
    lines = [f"{outline.address} has {outline.total_chars:,} characters. Each line: address, first character, length."]
    lines += [f"{item.address} @{item.offset} +{item.chars} {item.description}".rstrip() for item in outline.items]
    if outline.next_cursor is not None:
        lines.append(f"[cursor={outline.next_cursor} lists more]")
    lines.append(f"[lcm_expand with the address {outline.address} and a cursor opens it at that character.]")
    return "\n".join(lines)
