"""A handoff opened: its sections, the facts in them, and the messages that hold each fact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perdure.context.handoff import parse_handoff
from perdure.core.errors import NotFound
from perdure.core.messages import Entry
from perdure.store.records import Conversation, Span, StoredEvent, StoredHandoff
from perdure.store.savings import MADE, prompt_sizes
from perdure.store.views import holds
from perdure.web.fact_links import Links, fact_rows
from perdure.web.quote_links import quote_rows
from perdure.web.shapes import CoverRow, HandoffView, SectionRow
from perdure.web.sight import Sight


def handoff_view(sight: Sight, conversation: Conversation, seq: int) -> HandoffView:
    """Everything known of one handoff. Raises NotFound."""
    store = sight.store
    handoffs = store.log.handoffs(conversation.id)
    handoff = handoffs.get(seq)
    if handoff is None:
        raise NotFound(f"h:{seq} is no handoff of {conversation.id}")
    sections = _sections(store.log.read(conversation.id, Span(seq, seq)))
    event = _event_of(handoff, store.ledger.events(handoff.conversation_id, kind="compaction", limit=100_000))
    findings = [str(f) for f in handoff.check.get("findings", ())]
    payload = event.payload if event is not None else {}
    before, after = prompt_sizes(payload)
    # Not only what it stands for: it quotes what was kept beside it too, and that is no less a source.
    sources = store.timeline.bodies(conversation.id, Span(1, seq - 1))
    doubts = _chain_findings(handoff, handoffs)
    return HandoffView(
        seq=seq,
        session_id=handoff.session_id,
        created_at=handoff.created_at_ms,
        model=handoff.model,
        focus=handoff.focus,
        cost_usd=handoff.cost_usd,
        is_digest=not handoff.model,
        previous=handoff.previous,
        before_tokens=before,
        after_tokens=after,
        reason=str(payload.get("reason", "")),
        sections=sections,
        facts=[*quote_rows(sections, sources, doubts), *fact_rows(sections, Links(sources), doubts)],
        covers=[CoverRow(lo=s.lo, hi=s.hi, address=s.address, messages=len(s)) for s in handoff.covers],
        findings=findings,
        can_undo=seq == _newest_standing(handoffs.values(), store.log.view(conversation.id)),
    )


def _chain_findings(handoff: StoredHandoff, handoffs: Mapping[int, StoredHandoff]) -> set[str]:
    """What the checks found in a handoff and in those it carries on: a doubt is not laid by being repeated."""
    found: set[str] = set()
    one: StoredHandoff | None = handoff
    while one is not None:
        found.update(str(f) for f in one.check.get("findings", ()))
        one = handoffs.get(one.previous) if one.previous is not None and one.previous < one.seq else None
    return found


def _sections(entries: Sequence[Entry]) -> list[SectionRow]:
    """As parsed; what is no handoff of ours (an engine may write its own) is one section."""
    text = entries[0].message.text if entries else ""
    parsed = parse_handoff(text)
    if parsed is None or not parsed.sections:
        return [SectionRow(title="StoredHandoff", text=text)]
    return [SectionRow(title=title, text=body) for title, body in parsed.sections.items()]


def _event_of(handoff: StoredHandoff, events: Sequence[StoredEvent]) -> StoredEvent | None:
    """The compaction that wrote it: told in the session it began."""
    made = [e for e in events if e.session_id == handoff.session_id and e.payload.get("outcome") in MADE]
    return made[0] if made else None


def _newest_standing(handoffs: Iterable[StoredHandoff], view: Sequence[Span]) -> int | None:
    """The handoff that an undo would take back."""
    return max((h.seq for h in handoffs if holds(view, h.seq)), default=None)
