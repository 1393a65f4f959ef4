"""Tools backed by the agent itself: `clarify`, `todo`, `session_search`, `context`, `delegate_task`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from perdure.core.display import answer_line, describe_report, full_address
from perdure.core.errors import NotFound, StoreError, ToolError
from perdure.core.ports import Asker, ContextControl, ContextReading, Page, Search, SearchHit, SearchReport, Spawner
from perdure.tools.builtin.reading import CitedPassage, HitReader, ReadingFailure
from perdure.tools.tool import Tool, ToolContext, ToolReply, tool_from_function


class ClarifyTool:
    """The `clarify` tool: ask the user a question."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def tool(self) -> Tool:
        return tool_from_function(
            self.clarify,
            name="clarify",
            toolset="clarify",
            is_interactive=True,
            is_internal=True,
            timeout_s=24 * 3_600.0,
        )

    async def clarify(
        self,
        question: Annotated[str, "one question, short"],
        choices: Annotated[list[str] | None, "answers to choose from; the user may still type their own"] = None,
    ) -> str:
        """Asks the user something you cannot find out yourself, and waits for the answer."""
        if not question.strip():
            raise ToolError("the question is empty")
        answer = await self._asker.ask(question.strip(), tuple(choices or ()))
        return answer.strip() or "(the user gave no answer; continue with your best judgement)"


_CHECKBOXES = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}
MAX_ITEMS = 100


class TodoItem(BaseModel):
    """One step of the task list."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=500)
    status: Literal["pending", "in_progress", "completed", "cancelled"] = "pending"


class Plans(Protocol):
    """Storage for the task list of a conversation (port)."""

    def load(self, conversation_id: str) -> Sequence[Any]:
        """Return the items as plain dicts; empty if there is no plan."""
        ...

    def save(self, conversation_id: str, items: Sequence[Any]) -> None:
        """Store the items; durable on return."""
        ...


class TodoTool:
    """The `todo` tool: read or replace the plan of the conversation."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans

    def tool(self) -> Tool:
        return tool_from_function(self.todo, name="todo", toolset="planning", is_internal=True, is_ordered=True)

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
        stored = [i.model_dump() for i in items]
        self._plans.save(context.conversation_id, stored)
        return render_plan(stored)


def render_plan(items: Sequence[Any]) -> str:
    """Format the plan as a numbered list."""
    lines = [f"{n}. {_CHECKBOXES.get(i['status'], '[ ]')} {i['text']}" for n, i in enumerate(items, 1)]
    return "\n".join(lines) or "There is no plan yet."


# m:120, m:120-180, m:3-154,170-181, h:57, w:3, output:<id>, each also of another conversation: c_…/m:120
ADDRESS = re.compile(r"(?:[cs]_[0-9a-z]+/)?(?:w:\d+|[mh]:\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*|output:[\w.-]+)")
PAGE_CHARS = 20_000
# From here on a result names the character to open its text at, rounded down.
_FAR_CHARS = 4_000
_ROUNDED_CHARS = 1_000
_READ_HITS, _READ_CHARS = 8, 3_000
_MAX_IMAGES = 4


# The parameters of `session_search`, with and without a reader of the results.
_Query = Annotated[str, 'a question, words, a "phrase", a prefix*, or an address: m:120-180, c_…/m:7, output:<id>']
_Rewordings = Annotated[
    list[str] | None,
    "for a question: two or three queries for the same in other words, such as the answer may have; finds more",
]
_Here = Annotated[bool, "only in this conversation"]
_Limit = Annotated[int, "most results"]
_Offset = Annotated[int, "for an address: first character to show"]
_Cursor = Annotated[str, "for more results of the same query: as named at the end of the last ones"]


class SessionSearch:
    """The `session_search` tool: search the user's conversations, including the current one."""

    def __init__(self, search: Search, *, page_chars: int = PAGE_CHARS, reader: HitReader | None = None) -> None:
        self._search = search
        self._page_chars = page_chars
        # Answers questions from the hits; None: they are only listed.
        self._reader = reader

    def tool(self) -> Tool:
        handler = self.session_search if self._reader is None else self.session_search_asked
        return tool_from_function(
            handler, name="session_search", toolset="memory", is_read_only=True, max_result_chars=0
        )

    async def session_search_asked(
        self,
        context: ToolContext,
        query: _Query,
        rewordings: _Rewordings = None,
        here: _Here = False,
        limit: _Limit = 10,
        offset: _Offset = 0,
        cursor: _Cursor = "",
        answer: Annotated[bool, "have another model read the results and answer the query, citing addresses"] = False,
    ) -> ToolReply:
        """Finds earlier messages and tool outputs, or opens an address that a handoff or a result names."""
        search = partial(self.session_search, context, query, rewordings, here, limit, offset, cursor)
        plain = await asyncio.to_thread(search)
        if self._reader is None or not answer or ADDRESS.fullmatch(query.strip()):
            return plain
        passages = await asyncio.to_thread(self._passages, context, query, rewordings or (), here)
        if not passages:
            return plain
        read = await self._reader.read(passages, query, conversation_id=context.conversation_id)
        note = f"[Not answered: {read.reason}]" if isinstance(read, ReadingFailure) else read
        return ToolReply(f"{note}\n\n{plain.text}")

    def _passages(self, context: ToolContext, query: str, rewordings: Sequence[str], here: bool) -> list[CitedPassage]:
        """Return the beginning of each of the best hits, under its address."""
        scope = _scope(context, here=here)
        hits = self._search.search(query, visibility=context.user, scope=scope, limit=_READ_HITS, rewordings=rewordings)
        passages = []
        for hit in hits:
            address = hit.address if hit.conversation_id == context.conversation_id else full_address(hit)
            try:
                page = self._search.open(address, conversation_id=context.conversation_id, limit=_READ_CHARS)
            except NotFound:  # deleted meanwhile
                continue
            # The snippet has the match, which may be far from the beginning of a long text.
            text = page.text if page.next_offset is None else f"{hit.snippet}\n…\n{page.text}"
            answer = f"\n{answer_line(hit, context.conversation_id)}" if hit.answer else ""
            passages.append(CitedPassage(address, f"{text}{answer}"))
        return passages

    def session_search(
        self,
        context: ToolContext,
        query: _Query,
        rewordings: _Rewordings = None,
        here: _Here = False,
        limit: _Limit = 10,
        offset: _Offset = 0,
        cursor: _Cursor = "",
    ) -> ToolReply:
        """Finds earlier messages and tool outputs, or opens an address that a handoff or a result names."""
        if ADDRESS.fullmatch(query.strip()):
            return self._open(query.strip(), context, max(0, offset))
        return self.find(query, context, here=here, limit=limit, cursor=cursor, rewordings=rewordings or ())

    def find(
        self,
        query: str,
        context: ToolContext,
        *,
        here: bool,
        limit: int,
        cursor: str,
        rewordings: Sequence[str] = (),
        with_question: bool = False,
    ) -> ToolReply:
        """Search by words; the current question is left out, or comes last `with_question`. Raises ToolError."""
        try:
            report = self._search.report(
                query,
                visibility=context.user,
                scope=_scope(context, here=here, with_question=with_question),
                limit=min(max(1, limit), 50),
                cursor=cursor.strip() or None,
                rewordings=rewordings,
            )
        except StoreError as error:
            raise ToolError(str(error)) from None
        lines = [describe_report(report), *(_format_hit(h, context, report) for h in report.hits)]
        if report.hits:
            more = f" cursor={report.next_cursor} shows more results." if report.next_cursor else ""
            lines.append(f"[A result's address as the query opens it in full.{more}]")
        return ToolReply("\n\n".join(lines))

    def _open(self, address: str, context: ToolContext, offset: int) -> ToolReply:
        try:
            page = self._search.open(
                address, conversation_id=context.conversation_id, offset=offset, limit=self._page_chars
            )
        except NotFound as error:
            raise ToolError(str(error)) from None
        end = page.offset + len(page.text)
        text, images = format_page(page), page.images[:_MAX_IMAGES]
        if len(page.images) > len(images):
            text += f"\n[{len(page.images) - len(images)} more images: open the messages one by one]"
        return ToolReply(text, source=f"{address} (characters {page.offset:,}-{end:,})", parts=images)


def _scope(context: ToolContext, *, here: bool, with_question: bool = False) -> dict[str, str | None]:
    """Return the search scope; the message that the model is answering is excluded, or last `with_question`."""
    present = context.conversation_id or None
    return {"conversation": present if here else None, "asked_in" if with_question else "answering": present}


def _format_hit(hit: SearchHit, context: ToolContext, report: SearchReport) -> str:
    when = datetime.fromtimestamp(hit.created_at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M")
    title = f" · “{hit.title}”" if hit.title else ""
    address = hit.address if hit.conversation_id == context.conversation_id else full_address(hit)
    words = len(report.words)
    share = f" · {len(hit.matched)} of {words} words" if words > 1 and report.queries == 1 else ""
    where = f" · from character {hit.offset - hit.offset % _ROUNDED_CHARS}" if hit.offset > _FAR_CHARS else ""
    answer = f"\n{answer_line(hit, context.conversation_id)}" if hit.answer else ""
    return f"{address} · {hit.role} · {when}{title}{share}{where}\n{hit.snippet}{answer}"


def format_page(page: Page, *, argument: str = "offset") -> str:
    """Format a page of text, with the argument value that continues after it."""
    if page.next_offset is None and page.offset == 0:
        return page.text
    more = f"continue with {argument}={page.next_offset}" if page.next_offset is not None else "this is the end"
    return f"{page.text}\n[{page.address}: characters from {page.offset:,} of {page.total_chars:,}; {more}]"


class ContextTool:
    """The `context` tool: what fills the window, and a compaction on request."""

    def __init__(self, control: ContextControl) -> None:
        self._control = control

    def tool(self) -> Tool:
        return tool_from_function(self.context, name="context", toolset="context", is_internal=True)

    def context(
        self,
        call: ToolContext,
        action: Annotated[
            Literal["show", "compact"], "show what fills the window, or compact after this step"
        ] = "show",
        focus: Annotated[str, "for compact: the topic to keep in full detail"] = "",
    ) -> str:
        """Shows how full your context window is and what fills it, or asks for a compaction."""
        if action == "show":
            return _format_reading(self._control.read(call.conversation_id))
        self._control.request_compaction(call.conversation_id, focus.strip() or None)
        return "The conversation is compacted before your next step. This call and its result stay in view."


def _format_reading(reading: ContextReading) -> str:
    lines = [f"{reading.tokens:,} tokens"]
    if reading.window is not None:
        share = reading.tokens / max(1, reading.window)
        limit = "compaction is off" if reading.threshold is None else f"compacted at {reading.threshold:,}"
        lines = [f"{reading.tokens:,} of {reading.window:,} tokens ({share:.0%}); {limit}."]
    parts = sorted(((tokens, name) for name, tokens in reading.parts.items() if tokens), reverse=True)
    lines.append("By part: " + ", ".join(f"{name} {tokens:,}" for tokens, name in parts))
    if reading.largest:
        lines.append("Largest messages:")
        lines += [f"- {address}, {what}: {tokens:,}" for address, what, tokens in reading.largest]
    return "\n".join(lines)


MAX_PARALLEL = 8


class DelegateTool:
    """The `delegate_task` tool: run child agents in parallel."""

    def __init__(self, spawner: Spawner, *, max_iterations: int) -> None:
        self._spawner = spawner
        self._max_iterations = max_iterations

    def tool(self) -> Tool:
        return tool_from_function(
            self.delegate_task,
            name="delegate_task",
            toolset="delegation",
            is_internal=True,
            timeout_s=24 * 3_600.0,
        )

    async def delegate_task(
        self,
        call: ToolContext,
        tasks: Annotated[list[str], "what to do, one entry per helper; they run side by side and see nothing else"],
        context: Annotated[str, "what every helper must know: files, findings, constraints"] = "",
    ) -> str:
        """Hands work to helpers with a fresh context each. Their reports come back; their steps do not fill yours."""
        assignments = [t.strip() for t in tasks if t.strip()]
        if not assignments:
            raise ToolError("`tasks` is empty; say what the helper is to do")
        if len(assignments) > MAX_PARALLEL:
            raise ToolError(f"at most {MAX_PARALLEL} helpers at once, and this asks for {len(assignments)}")
        children = [
            self._spawner.spawn(
                task, parent_id=call.conversation_id, context=context, max_iterations=self._max_iterations
            )
            for task in assignments
        ]
        reports = await asyncio.gather(*children, return_exceptions=True)
        return "\n\n".join(_format_report(n, len(assignments), r) for n, r in enumerate(reports, 1))


def _format_report(number: int, total: int, report: str | BaseException) -> str:
    if isinstance(report, asyncio.CancelledError):
        raise report
    text = f"failed: {report}" if isinstance(report, BaseException) else report
    return text if total == 1 else f"## Report {number} of {total}\n{text}"
