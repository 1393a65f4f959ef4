"""Responses of the web UI's API. The routes, all GET, all under `/api/page`, limited to what the principal may see:

    /conversations?q=&source=&model=&only=&sort=&cursor=&limit=…    ConversationListResponse
    /search?q=&source=&since=&until=&limit=                         SearchPage
    /filters                                                        Filters
    /conversations/{any_id}                                         ConversationHead
    /conversations/{any_id}/timeline?before=&after=&around=&limit=  TimelineResponse, oldest first in a page
    /conversations/{any_id}/context                                 ContextChart
    /conversations/{any_id}/failures                                FailureList
    /conversations/{any_id}/handoffs/{seq}                          HandoffView
    /conversations/{any_id}/open?address=&offset=&limit=            OpenedPage           (m:…, h:…, output:…)
    /usage?days=                                                    UsageView
    /live?cursor=                                                   server-sent events of `ConversationChanged`

Times are UTC epoch milliseconds; money is dollars, null where no price is known; an `any_id` is any session or
conversation id. Offsets in a text count characters (code points, so that an emoji is one). User text is never markup:
the web UI inserts it as text.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasPath, BaseModel, ConfigDict, Field


class RecordModel(BaseModel):
    """A schema read from a record of the store: `Model.model_validate(record)`.

    A field takes the attribute of its own name, or the one that its alias gives.
    """

    model_config = ConfigDict(from_attributes=True, populate_by_name=True)


class ErrorBody(BaseModel):
    """An error: one plain sentence."""

    detail: str


class FailureCounts(RecordModel):
    """What went wrong in a conversation, by kind."""

    failed_turns: int
    model_refusals: int
    stopped_turns: int
    # Errors after which the turn went on.
    provider_errors: int
    failed_tool_calls: int
    refused_tool_calls: int


class FiguresRow(FailureCounts):
    """What a conversation cost and how it went; the cost leaves out the unpriced calls."""

    calls: int
    tokens: int
    cost_usd: float | None
    unpriced_calls: int
    unreported_calls: int
    context_tokens: int | None
    window: int | None = Field(validation_alias="window_tokens")
    # The model of the newest call; "" before the first.
    model: str
    compactions: int


class ConversationRow(BaseModel):
    id: str
    title: str
    source: str
    model: str
    kind: Literal["main", "branch", "delegate"]
    user_key: str
    created_at: int
    updated_at: int
    messages: int
    figures: FiguresRow | None = None
    # Where a search brought it up: a piece of text with the hits as [start, end) offsets.
    snippet: str | None = None
    marks: list[tuple[int, int]] = []
    hit_seq: int | None = None


class ConversationListResponse(BaseModel):
    conversations: list[ConversationRow]
    next_cursor: str | None
    # With a query: what was searched and how well it matches, in words.
    note: str = ""


class SearchAnswerRow(BaseModel):
    """The reply to a question that was found, or the result of a call."""

    seq: int
    role: str
    snippet: str
    marks: list[tuple[int, int]]


class SearchHitRow(BaseModel):
    conversation_id: str
    title: str
    seq: int | None
    # Set where the hit is inside a stored tool output.
    output_id: str | None
    role: str
    created_at: int
    snippet: str
    marks: list[tuple[int, int]]
    answer: SearchAnswerRow | None = None


class SearchPage(BaseModel):
    hits: list[SearchHitRow]
    # What was searched and how well it matches, in words.
    note: str = ""


class Filters(BaseModel):
    """What there is to filter by."""

    sources: list[str]
    models: list[str]


class SessionRow(RecordModel):
    id: str
    began_by: str
    model: str = Field(validation_alias=AliasPath("route", "model"))
    first_seq: int
    last_seq: int | None
    started_at: int = Field(validation_alias="started_at_ms")
    ended_at: int | None = Field(validation_alias="ended_at_ms")
    end_reason: str | None


class TotalsRow(RecordModel):
    calls: int
    input_tokens: int = Field(validation_alias=AliasPath("usage", "input_tokens"))
    cache_read_tokens: int = Field(validation_alias=AliasPath("usage", "cache_read_tokens"))
    cache_write_tokens: int = Field(validation_alias=AliasPath("usage", "cache_write_tokens"))
    output_tokens: int = Field(validation_alias=AliasPath("usage", "output_tokens"))
    reasoning_tokens: int = Field(validation_alias=AliasPath("usage", "reasoning_tokens"))
    cost_usd: float | None
    unpriced_calls: int
    unreported_calls: int
    unreported_estimate_tokens: int
    compactions: int


class ConversationHead(BaseModel):
    """The header of a conversation: title, session chain, totals, and context usage after the last call."""

    id: str
    title: str
    source: str
    kind: Literal["main", "branch", "delegate"]
    parent_id: str | None
    user_key: str
    tip_session_id: str
    created_at: int
    updated_at: int
    last_seq: int
    sessions: list[SessionRow]
    totals: TotalsRow
    # Handoffs, oldest first, by the seq of their message.
    handoffs: list[int]
    failures: FailureCounts
    gauge: GaugeRow | None
    children: list[ConversationRow]


class GaugeRow(BaseModel):
    model: str
    tokens: int
    window: int | None
    threshold: int | None
    composition: dict[str, int]


class ToolCallRow(BaseModel):
    id: str
    name: str
    # The one argument worth reading at a glance: a path, a command, a query.
    target: str
    # Long ones are cut; /open?address=m:{seq} has all of them.
    arguments: Any
    is_cut: bool = False
    # A program that uses the OpenAI-compatible API runs this call.
    is_for_client: bool = False


class ImageRow(BaseModel):
    # A data: URL for what was sent inline; else null, with the address in `source`.
    data_url: str | None
    source: str


class MessageRow(BaseModel):
    seq: int
    session_id: str
    kind: str
    role: str
    # Long text is truncated at `text_limit` (`is_cut`); /open?address=m:{seq} returns all of it.
    text: str
    is_cut: bool
    chars: int
    tokens: int
    reasoning: str
    images: list[ImageRow]
    tool_calls: list[ToolCallRow]
    # A tool's result: which call it answers, how long it took where known, where the whole lies if it was spilled.
    tool_call_id: str | None
    tool_name: str | None
    # The message that made the call, if known; it may precede this page.
    call_seq: int | None
    # Of an answer: "model" if the model refused, "filter" if a filter of its provider cut the answer off; else null.
    refused_by: str | None
    # Of an answer whose call ended early: "interrupted" by a person, or the kind of error; else null.
    cut_off: str | None
    # completed · failed · refused · interrupted; null unless it is a tool result.
    state: str | None
    exit_code: int | None
    seconds: float | None
    output_id: str | None
    output_chars: int | None
    created_at: int


class EventRow(BaseModel):
    """An event right after `after_seq`: compaction · spill · model_switch · recovery · notice · partial · turn_failed ·
    turn_stopped · model_refused · undo."""

    id: int
    kind: str
    after_seq: int
    session_id: str
    created_at: int
    payload: dict[str, Any]


class TimelineResponse(BaseModel):
    messages: list[MessageRow]
    events: list[EventRow]
    first_seq: int | None
    last_seq: int | None
    has_before: bool
    has_after: bool


class CallPoint(BaseModel):
    """One model call on the chart. `composition` sums to `estimate`; `prompt` is the reported figure."""

    started_at: int
    # The newest message the call was made after: where a click goes.
    seq: int
    session_id: str
    model: str
    task: str
    prompt_tokens: int | None
    estimate_tokens: int | None
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    window: int | None
    threshold: int | None
    composition: dict[str, int]
    cost_usd: float | None
    verdict: str


class ContextChart(BaseModel):
    """Calls of the main task in order, and the events between them (an event precedes the call of its `at`)."""

    parts: list[str]
    calls: list[CallPoint]
    marks: list[ChartMark]
    # Calls that are not on the chart, by task: summaries and other helpers, each with a prompt of its own.
    auxiliary_calls: dict[str, int]


class ChartMark(BaseModel):
    kind: str
    # Index into `calls`: it happened before this one (len(calls): after the last).
    at: int
    seq: int
    # The event in the timeline; null for a tool's result.
    event_id: int | None = None
    # One plain sentence: "compacted: 101,200 → 31,000 tokens, because the prompt reached the threshold of 100,000".
    text: str
    # A compaction's figures: what the next prompt would have held, and what it holds instead.
    before_tokens: int | None = None
    after_tokens: int | None = None


class FailureRow(BaseModel):
    """turn_failed · turn_stopped · model_refused · recovery · tool_failed · tool_refused."""

    kind: str
    # The message it belongs to: a tool's result, else the message before the event.
    seq: int
    # The event in the timeline; null for a tool's result.
    event_id: int | None
    created_at: int
    # One plain sentence.
    text: str


class FailureList(BaseModel):
    """The failures of a conversation, oldest first."""

    failures: list[FailureRow]


class FactRow(BaseModel):
    """A fact of the handoff and the messages it occurs in."""

    text: str
    section: str
    # Offsets [start, end) in the section's text.
    marks: list[tuple[int, int]]
    # Messages that hold it, newest first; empty and unsupported where no source does.
    sources: list[int]
    is_supported: bool


class SectionRow(BaseModel):
    title: str
    text: str


class CoverRow(BaseModel):
    """A span of the log that the handoff covers."""

    lo: int
    hi: int
    address: str
    messages: int


class HandoffView(BaseModel):
    seq: int
    session_id: str
    created_at: int
    model: str
    focus: str
    cost_usd: float | None
    is_digest: bool
    previous: int | None
    before_tokens: int | None
    after_tokens: int | None
    reason: str
    sections: list[SectionRow]
    # The covered messages in order, and exact values that nothing else shows; "" where the handoff has none.
    record: str
    index: str
    facts: list[FactRow]
    covers: list[CoverRow]
    # All messages it covers, those of the handoffs it builds on included.
    message_count: int
    findings: list[str]
    # Whether the model reads it now, or did until another replaced it or an undo took it back.
    standing: Literal["current", "replaced", "undone"]
    # The newest handoff, still in effect: "undo" is offered.
    can_undo: bool


class OpenedPage(RecordModel):
    address: str
    text: str
    offset: int
    total_chars: int
    next_offset: int | None


class UsageGroup(RecordModel):
    group: str
    totals: TotalsRow


class ConversationUsage(BaseModel):
    """A conversation of the usage view."""

    id: str
    title: str
    totals: TotalsRow


class UsageView(BaseModel):
    """`saved_by_cache_usd`: what cache reads would have cost fresh, less what they and the writes did cost.
    `saved_by_compaction_tokens`: prompt tokens that later calls did not carry; null where it cannot be known."""

    days: int
    by_day: list[UsageGroup]
    by_model: list[UsageGroup]
    by_source: list[UsageGroup]
    by_task: list[UsageGroup]
    # The most expensive conversations, the most expensive first.
    costliest: list[ConversationUsage]
    totals: TotalsRow
    saved_by_cache_usd: float | None
    saved_by_compaction_tokens: int | None
    saved_by_compaction_usd: float | None


class ConversationChanged(BaseModel):
    """One line of /live: something of this conversation is new. Open views fetch what they lack."""

    conversation_id: str
    last_seq: int
    updated_at: int
    cursor: str


ConversationHead.model_rebuild()
ContextChart.model_rebuild()
