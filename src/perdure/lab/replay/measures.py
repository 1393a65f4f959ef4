"""Measure a replay, call by call and as one record per session; `docs/lab.md` defines every figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.agent.agent import ConversationAgent
from perdure.core.events import CompactionFinished
from perdure.core.messages import Entry, Message
from perdure.core.usage import CanonicalUsage
from perdure.lab.replay.facts import Need, standing_instructions
from perdure.lab.replay.prices import MAIN_SYSTEM, PRICE_SYSTEMS, SMALL_MODEL
from perdure.lab.replay.provider import ReplayCall, ReplayProvider
from perdure.store.store import SessionStore
from perdure.testing.simulator import count_text

# A call that reads less than this share of the previous prompt from a live cache has lost its prefix.
REWRITE_SHARE = 0.5
# A compaction this few calls after another is one of a burst.
BURST_CALLS = 4
# How long the main price system keeps a prefix.
TTL_S = 300.0
FIRST_HITS = 5
_LISTED = 40
# A request for a summary at the end of a conversation.
_INSTRUCTION_TOKENS = 600
_EXCERPT_CHARS = 90
_LINE_CHARS = 30


@dataclass(frozen=True, slots=True)
class DroppedMessage:
    """A message that left the view: `is_line` where the handoff still quotes it, and where to open it whole."""

    address: str
    role: str
    tokens: int
    excerpt: str
    is_line: bool


@dataclass(frozen=True, slots=True)
class CompactionDetail:
    """The sizes of one compaction, and what became of each message that was in view."""

    call: int
    before_tokens: int
    after_tokens: int
    stayed: int
    lines: int
    removed: int
    handoff_chars: int
    # The largest of those that are no longer in view as they were.
    dropped: tuple[DroppedMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class MissedFact:
    """A later-needed fact missing in the request of the call that has it as an argument; whether a search finds it."""

    call: int
    fact: str
    is_found: bool


@dataclass(frozen=True, slots=True)
class SessionMeasures:
    """The measures of one session replayed under one policy at one window."""

    session: str
    policy: str
    window: int
    calls: int = 0
    summary_calls: int = 0
    # By price system: tokens by class, and US dollars.
    usage: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    cost_usd: Mapping[str, float] = field(default_factory=dict)
    summary_cost_usd: Mapping[str, float] = field(default_factory=dict)
    # The same summaries by a small model, and as one more request appended to the conversation's own prompt.
    summary_small_usd: float = 0.0
    summary_prefix_usd: float = 0.0
    compactions: int = 0
    # Calls that lost their prefix, by cause.
    rewrites_expired: int = 0
    rewrites_compaction: int = 0
    rewrites_avoidable: int = 0
    peak_tokens: int = 0
    mean_tokens: float = 0.0
    # Later-needed facts: far ones, those in view, those of them in context, those one question away; and all needs.
    needs: int = 0
    in_view: int = 0
    in_context: int = 0
    one_question: int = 0
    all_needs: int = 0
    all_in_view: int = 0
    instructions: int = 0
    instructions_kept: int = 0
    violations: int = 0
    overflows: int = 0
    own_s: float = 0.0
    # Prompt tokens of each call, and the calls before which a compaction took place.
    context: tuple[int, ...] = ()
    details: tuple[CompactionDetail, ...] = ()
    # The first of the later-needed facts that were not in view.
    missed: tuple[MissedFact, ...] = ()

    @property
    def hit_rate(self) -> float:
        """The share of all prompt tokens that came from the cache, in the main price system."""
        used = self.usage.get(MAIN_SYSTEM, {})
        prompt = sum(used.get(k, 0) for k in ("input_tokens", "cache_read_tokens", "cache_write_tokens"))
        return used.get("cache_read_tokens", 0) / prompt if prompt else 0.0


class MeasureRecorder:
    """Collects the measures of one replay while it runs."""

    def __init__(self, needs: Sequence[Sequence[Need]], *, position: Callable[[], int]) -> None:
        self._needs = needs
        self._position = position
        self._main: list[ReplayCall] = []
        self._totals = {key: CanonicalUsage() for key in PRICE_SYSTEMS}
        self._costs = dict.fromkeys(PRICE_SYSTEMS, 0.0)
        self._summary_costs = dict.fromkeys(PRICE_SYSTEMS, 0.0)
        self._summaries = 0
        self._small_usd = self._prefix_usd = 0.0
        self._far = self._far_in_view = self._far_in_context = self._far_found = self._all = self._all_in_view = 0
        self._standing: dict[str, None] = {}
        self._checked = self._kept_instructions = 0
        self._compacted_at: list[int] = []
        self._details: list[CompactionDetail] = []
        self._missed: list[MissedFact] = []
        self._agent: ConversationAgent | None = None
        self._view: list[Entry] = []
        self._expired = self._by_compaction = self._avoidable = 0

    def watch(self, agent: ConversationAgent) -> None:
        self._agent = agent

    def begin_turn(self, text: str) -> None:
        self._standing.update(dict.fromkeys(standing_instructions(text)))

    def on_call(self, call: ReplayCall) -> None:
        """Measure one request, before its reply is used."""
        for key, usage in call.usages.items():
            cost = PRICE_SYSTEMS[key].cost_usd(usage)
            self._totals[key] += usage
            self._costs[key] += cost
            if call.task != "main":
                self._summary_costs[key] += cost
        if call.task != "main":
            self._count_summary(call)
            return
        is_first_after = bool(self._compacted_at) and self._compacted_at[-1] == len(self._main)
        self._count_rewrite(call, is_first_after)
        self._check_needs(call.prompt)
        if is_first_after:
            self._check_instructions(call.prompt)
        self._main.append(call)
        if self._agent is not None:
            self._view = list(self._agent.open().live.entries)

    def on_compaction(self, event: CompactionFinished) -> None:
        if event.outcome not in ("compacted", "digest") or self._agent is None:
            return
        self._compacted_at.append(len(self._main))
        after = list(self._agent.open().live.entries)
        self._details.append(_describe(self._view, after, event, call=len(self._main)))
        self._view = after

    def finish(
        self, job: Any, provider: ReplayProvider, store: SessionStore, agent: ConversationAgent
    ) -> SessionMeasures:
        """Return the record of the whole session."""
        if self._main:
            self._check_instructions(self._main[-1].prompt)
        sizes = tuple(call.prompt_tokens for call in self._main)
        return SessionMeasures(
            session=job.session.id,
            policy=job.policy.label,
            window=job.window,
            calls=len(sizes),
            summary_calls=self._summaries,
            usage={key: _tokens(usage) for key, usage in self._totals.items()},
            cost_usd={key: round(cost, 6) for key, cost in self._costs.items()},
            summary_cost_usd={key: round(cost, 6) for key, cost in self._summary_costs.items()},
            summary_small_usd=round(self._small_usd, 6),
            summary_prefix_usd=round(self._prefix_usd, 6),
            compactions=len(self._compacted_at),
            rewrites_expired=self._expired,
            rewrites_compaction=self._by_compaction,
            rewrites_avoidable=self._avoidable,
            peak_tokens=max(sizes, default=0),
            mean_tokens=round(sum(sizes) / max(1, len(sizes)), 1),
            needs=self._far,
            in_view=self._far_in_view,
            in_context=self._far_in_context,
            one_question=self._far_found,
            all_needs=self._all,
            all_in_view=self._all_in_view,
            instructions=self._checked,
            instructions_kept=self._kept_instructions,
            violations=len(provider.violations),
            overflows=provider.overflows,
            context=sizes,
            details=tuple(self._details),
            missed=tuple(self._missed[:_LISTED]),
        )

    def _count_summary(self, call: ReplayCall) -> None:
        """Count what a summary call would have cost if it had been requested in two other ways."""
        self._summaries += 1
        usage = call.usages[MAIN_SYSTEM]
        self._small_usd += SMALL_MODEL.cost_usd(usage)
        if not self._main or self._agent is None:
            return
        previous = self._main[-1]
        is_cached = call.at_s - previous.at_s < TTL_S
        read = previous.prompt_tokens if is_cached else 0
        prompt = self._agent.open().live.counter.estimate + _INSTRUCTION_TOKENS
        behind = CanonicalUsage(max(0, prompt - read), usage.output_tokens, read)
        self._prefix_usd += PRICE_SYSTEMS[MAIN_SYSTEM].cost_usd(behind)

    def _count_rewrite(self, call: ReplayCall, is_first_after: bool) -> None:
        if not self._main:
            return
        previous = self._main[-1]
        if previous.usages[MAIN_SYSTEM].cache_write_tokens + previous.usages[MAIN_SYSTEM].cache_read_tokens == 0:
            return  # too short to be cached
        if call.usages[MAIN_SYSTEM].cache_read_tokens >= REWRITE_SHARE * previous.prompt_tokens:
            return
        if call.at_s - previous.at_s >= TTL_S:
            self._expired += 1
        elif is_first_after and not self._is_in_burst():
            self._by_compaction += 1
        else:
            self._avoidable += 1

    def _is_in_burst(self) -> bool:
        newest = self._compacted_at[-2:]
        return len(newest) == 2 and newest[1] - newest[0] < BURST_CALLS

    def _check_needs(self, prompt: bytes) -> None:
        position = self._position()
        missing: list[Need] = []
        text = ""
        for need in self._needs[position] if position < len(self._needs) else ():
            is_visible = need.fact.encode() in prompt
            self._all += 1
            self._all_in_view += is_visible
            if need.is_far:
                self._far += 1
                self._far_in_view += is_visible
                text = text or prompt.decode("utf-8", "replace")
                self._far_in_context += is_visible and need.is_in_context(text)
                missing += [] if is_visible else [need]
        if missing:
            texts = self._search(missing[0].question)
            call = len(self._main) + 1
            rows = [MissedFact(call, need.fact, any(need.fact in text for text in texts)) for need in missing]
            self._far_found += sum(row.is_found for row in rows)
            self._missed += rows

    def _search(self, question: str) -> list[str]:
        """Search the log with the agent's own words and return the texts of the first hits."""
        if self._agent is None or not question:
            return []
        store, conversation = self._agent.deps.store, self._agent.open().live.conversation_id
        hits = store.search(question, limit=FIRST_HITS)
        return [store.open(hit.address, conversation_id=conversation).text for hit in hits]

    def _check_instructions(self, prompt: bytes) -> None:
        for instruction in self._standing:
            self._checked += 1
            self._kept_instructions += instruction.encode() in prompt


def _tokens(usage: CanonicalUsage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def _describe(
    before: Sequence[Entry], after: Sequence[Entry], event: CompactionFinished, *, call: int
) -> CompactionDetail:
    remaining = {e.seq for e in after}
    earlier = {e.seq for e in before}
    inserted = "\n".join(e.message.text for e in after if e.seq not in earlier)
    dropped = [
        _make_dropped_message(e, inserted) for e in before if e.seq not in remaining and e.message.kind != "handoff"
    ]
    lines = sum(d.is_line for d in dropped)
    largest = sorted(dropped, key=lambda d: -d.tokens)[:_LISTED]
    return CompactionDetail(
        call=call,
        before_tokens=event.before_tokens,
        after_tokens=event.after_tokens,
        stayed=len(remaining & earlier),
        lines=lines,
        removed=len(dropped) - lines,
        handoff_chars=len(inserted),
        dropped=tuple(largest),
    )


def _make_dropped_message(entry: Entry, inserted: str) -> DroppedMessage:
    message = entry.message
    text = " ".join(_readable(message).split())
    is_line = bool(text) and text[:_LINE_CHARS] in " ".join(inserted.split())
    return DroppedMessage(f"m:{entry.seq}", message.role, _tokens_of(message), text[:_EXCERPT_CHARS], is_line)


def _tokens_of(message: Message) -> int:
    """Return the tokens of a message by the simulator's count, as all other figures."""
    return count_text(message.text) + sum(count_text(f"{c.name}{c.arguments}") for c in message.tool_calls)


def _readable(message: Message) -> str:
    calls = " ".join(f"{c.name} {c.arguments}" for c in message.tool_calls)
    return message.text or calls
