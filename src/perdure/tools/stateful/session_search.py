"""`session_search`: finds words in everything ever said, and opens addresses: what left the view is one call away."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

from perdure.core.errors import NotFound, ToolError
from perdure.core.ports import Page, Search, SearchHit
from perdure.core.visibility import only
from perdure.tools.tool import Tool, ToolContext, ToolReply, tool_from_function

# m:120, m:120-180, m:3-154,170-181, h:57, output:<id>
ADDRESS = re.compile(r"(?:[mh]:\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*|output:[\w.-]+)")
PAGE_CHARS = 20_000


class SessionSearch:
    """Searches the user's own conversations, the present one included."""

    def __init__(self, search: Search, *, page_chars: int = PAGE_CHARS) -> None:
        self._search = search
        self._page_chars = page_chars

    def tool(self) -> Tool:
        return tool_from_function(
            self.session_search, name="session_search", toolset="memory", is_read_only=True, max_result_chars=0
        )

    def session_search(
        self,
        context: ToolContext,
        query: Annotated[str, 'words, a "phrase", a prefix*, or an address such as m:120-180 or output:<id>'],
        here: Annotated[bool, "only in this conversation"] = False,
        limit: Annotated[int, "most results"] = 10,
        offset: Annotated[int, "for an address: first character to show"] = 0,
    ) -> ToolReply:
        """Finds earlier messages and tool outputs, or opens an address that a handoff or a result names."""
        if ADDRESS.fullmatch(query.strip()):
            return self._open(query.strip(), context, max(0, offset))
        scope = {"conversation": context.conversation_id} if here else None
        visibility = only(context.user_key)
        hits = self._search.search(query, visibility=visibility, scope=scope, limit=min(max(1, limit), 50))
        if not hits:
            return ToolReply(f"Nothing found for {query!r}. Try fewer or other words, or a prefix such as deplo*.")
        return ToolReply("\n\n".join(_shown(h) for h in hits))

    def _open(self, address: str, context: ToolContext, offset: int) -> ToolReply:
        try:
            page = self._search.open(
                address, conversation_id=context.conversation_id, offset=offset, limit=self._page_chars
            )
        except NotFound as error:
            raise ToolError(str(error)) from None
        return ToolReply(_page(page), source=f"{address} (characters {page.offset:,}-{page.offset + len(page.text):,})")


def _shown(hit: SearchHit) -> str:
    when = datetime.fromtimestamp(hit.created_at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M")
    title = f" “{hit.title}”" if hit.title else ""
    return f"{hit.address} · {hit.role} · {when} · conversation {hit.conversation_id}{title}\n{hit.snippet}"


def _page(page: Page) -> str:
    if page.next_offset is None and page.offset == 0:
        return page.text
    more = f"read on with offset={page.next_offset}" if page.next_offset is not None else "this is the end"
    return f"{page.text}\n[{page.address}: characters from {page.offset:,} of {page.total_chars:,}; {more}]"
