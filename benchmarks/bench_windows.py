"""The engine `windows`: what is in view or one question away, what fifty windows lose, which cancelled tasks return.

Retention uses the recorded sessions of `bench_retention`: a fact that the agent goes on to need counts if it is in view
after a rollover, or in one of the first ten results of a search, opened where the result points. Two questions are
tried: the words around the fact where it first occurred, and the agent's own words where it goes on to use it, each
without the fact. The others are scripted, and run without recorded data.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.bench_retention import load_scorer, recorded_cases, visible_text
from benchmarks.data import Skip
from benchmarks.table import Row
from perdure.agent.compaction import plan_over_log
from perdure.context.compressor_state import MemoryState
from perdure.context.engine import EngineServices
from perdure.context.handoff import handoff_of
from perdure.context.notebook_engine import WindowEngine
from perdure.core.messages import Message, ToolCall, assistant, tool_result, user
from perdure.core.ports import SearchHit
from perdure.store.records import Session
from perdure.store.store import SessionStore, open_store

TITLE = "Windows: a notebook, fresh windows, and the log behind them"
WINDOW = 64_000
ROLLOVERS = 50
SMALL_WINDOW = 16_000
_FIRST_HITS = 10
_PAGE_CHARS = 20_000
_QUESTION_CHARS = 300
_AROUND_CHARS = 120


def rows() -> Iterator[Row]:
    try:
        yield from _retention_rows()
    except Skip as why:
        yield Row(f"retention skipped: {why}", 0)
    yield from _drift_rows()
    yield Row("cancelled tasks that return, of 200", len(revived_tasks()), "", "<= 0")


class Conversation:
    """A stored conversation under the engine, without an agent."""

    def __init__(self, store: SessionStore, window: int) -> None:
        self._store = store
        self.session: Session = store.create(system_prompt="")
        self._engine = WindowEngine(context_length=window)
        services = EngineServices(
            log=store.log.reader(self.session.id),
            state=MemoryState(),
            windows=partial(store.addresses.windows, self.session.id),
        )
        self._engine.on_session_start(self.session.id, services=services)
        self._engine.update_model(context_length=window)

    def append(self, *messages: Message) -> None:
        self._store.append(self.session.id, list(messages))

    def roll_over(self) -> bool:
        """Close the window; return whether there was anything to close."""
        entries = self._store.history(self.session.id).entries
        done = self._engine.compress(entries)
        if done.is_noop:
            return False
        self.session = self._store.compact(self.session.id, plan_over_log(done, entries))
        self._engine.on_session_start(self.session.id, reason="compression")
        return True

    @property
    def messages(self) -> list[Message]:
        return [e.message for e in self._store.history(self.session.id).entries]

    @property
    def view(self) -> str:
        return "\n".join(f"{m.text}\n" + "\n".join(c.arguments for c in m.tool_calls) for m in self.messages)

    def finds(self, value: str, question: str) -> bool:
        """Whether one of the first results of a question shows a value, opened where the result points."""
        hits = self._store.search(question.replace('"', " ")[:_QUESTION_CHARS], limit=_FIRST_HITS)
        return any(value in hit.excerpt or value in self._open(hit) for hit in hits)

    def _open(self, hit: SearchHit) -> str:
        offset = hit.offset - hit.offset % 1_000 if hit.offset > _PAGE_CHARS else 0
        page = self._store.addresses.expand(
            hit.address, conversation_id=self.session.id, offset=offset, limit=_PAGE_CHARS
        )
        return page.text


@contextmanager
def conversation(window: int) -> Iterator[Conversation]:
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "windows.db") as store:
        yield Conversation(store, window)


# -- recorded sessions -----------------------------------------------------------------------------------------------


def _retention_rows() -> Iterator[Row]:
    scorer = load_scorer()
    facts = visible = by_source = by_use = chars = cases = 0
    for _, _, before, _, after in recorded_cases(scorer, "entire_cli", "cases"):
        gold = scorer.gold(before, after)
        if not gold:
            continue
        cases += 1
        with conversation(WINDOW) as talk:
            talk.append(*map(Message.from_dict, before))
            talk.roll_over()
            view, source = talk.view, visible_text(scorer, before)
            chars += len(view)
            for fact in gold:
                facts += 1
                if fact in view:
                    visible += 1
                    continue
                by_source += talk.finds(fact, _around(fact, source))
                by_use += talk.finds(fact, _use(scorer, fact, after))
    share = 100 / max(1, facts)
    note = f"{facts} facts at {cases} compaction points, {chars // max(1, cases):,} characters in view"
    yield Row("later-needed facts in view", share * visible, "%", None, note)
    yield Row("in view, or found by the words around it", share * (visible + by_source), "%", ">= 99")
    yield Row("in view, or found by the words of its next use", share * (visible + by_use), "%")


def _around(fact: str, text: str) -> str:
    at = text.find(fact)
    around = text[max(0, at - _AROUND_CHARS) : at] + " " + text[at + len(fact) : at + len(fact) + _AROUND_CHARS]
    return around.replace(fact, " ")


def _use(scorer: ModuleType, fact: str, after: Sequence[Mapping[str, Any]]) -> str:
    """What the agent wrote, and the rest of the arguments, where it used the fact."""
    for message in after:
        arguments = scorer.args_text(message) if message["role"] == "assistant" else ""
        if fact in arguments:
            return f"{scorer.text_of(message)[:_QUESTION_CHARS]} {_around(fact, arguments)}".replace(fact, " ")
    return ""


# -- fifty windows ---------------------------------------------------------------------------------------------------

_TEAMS = ("billing", "search", "mail", "upload", "audit", "export", "ledger", "webhook")


def _drift_rows() -> Iterator[Row]:
    shares = rollover_shares()
    yield Row("facts in view or one question away after 5 windows", shares[4], "%", ">= 99")
    yield Row(f"the same after {ROLLOVERS} windows", shares[-1], "%", ">= 99")
    yield Row("drift", max(0.0, shares[4] - shares[-1]), "points", "<= 1")


def rollover_shares(rollovers: int = ROLLOVERS) -> list[float]:
    """The share of all facts so far that are in view or one question away, after each rollover, in percent."""
    draw, facts, shares = random.Random(11), [], []  # type: random.Random, list[tuple[str, str]], list[float]
    with conversation(SMALL_WINDOW) as talk:
        for n in range(rollovers):
            facts += _work(talk, n, draw)
            if not talk.roll_over():
                raise RuntimeError(f"window {n + 1} was not closed")
            if n not in (4, rollovers - 1):
                shares.append(0.0)
                continue
            view = talk.view
            found = sum(value in view or talk.finds(value, question) for value, question in facts)
            shares.append(100 * found / len(facts))
    return shares


def _work(talk: Conversation, n: int, draw: random.Random) -> list[tuple[str, str]]:
    """One window of work: what the user lays down, what a call shows, what the assistant concludes; and questions."""
    team, limit, port, cause = (
        draw.choice(_TEAMS),
        draw.randrange(10_000, 99_999),
        draw.randrange(2_000, 9_999),
        n + 700,
    )
    host = f"{team}-{n}.internal"
    call = ToolCall(f"call_{n}", "terminal", json.dumps({"command": f"ssh {host} cat /etc/service.conf"}))
    talk.append(
        user(f"Team {team} {n} may send at most {limit} requests an hour. Why does {host} fail?"),
        assistant("Let me look at its configuration.", (call,)),
        tool_result(call.id, f"name = {team}\nlisten = {port}\n", "terminal"),
        assistant(f"{host} fails with ERR-{cause} because its certificate has expired."),
    )
    for step in range(4):
        read = ToolCall(f"read_{n}_{step}", "read_file", json.dumps({"path": f"src/{team}/part_{n}_{step}.py"}))
        text = "\n".join(f"def handler_{n}_{step}_{i}(request): return {i}" for i in range(150))
        talk.append(assistant(None, (read,)), tool_result(read.id, text, "read_file"))
    talk.append(assistant(f"Read the sources of {team} {n}."))
    return [
        (str(limit), f"How many requests an hour may team {team} {n} send?"),
        (str(port), f"On which port does {host} listen?"),
        (f"ERR-{cause}", f"Why did {host} fail?"),
    ]


# -- cancelled tasks -------------------------------------------------------------------------------------------------

TASKS = (
    ("Please translate the onboarding guide into Spanish.", "the Spanish onboarding guide"),
    ("Build a dashboard for the sensor readings.", "the sensor dashboard"),
    ("Upgrade the payment library to version 8.", "the payment library upgrade"),
    ("Could you draft a blog post about our new search?", "the blog post"),
    ("Remove the deprecated login endpoints.", "the login endpoint removal"),
    ("Compress all product images in the gallery.", "compressing the gallery images"),
    ("Generate invoices for the customers in Norway.", "the Norwegian invoices"),
    ("Profile the startup of the mobile app.", "profiling the mobile app"),
    ("Set the staging database up with last week's backup.", "the staging database"),
    ("Book a meeting room for the quarterly review.", "the meeting room"),
)
CANCELLATIONS = (
    "Never mind.",
    "Forget that, please.",
    "Please stop, we won't do {task} after all.",
    "Hm, forget {task}.",
    "You can drop {task}, the client pulled out.",
    "Cancel {task}.",
    "I've changed my mind on {task}.",
    "No need to continue with {task}.",
    "{Task} is no longer needed.",
    "{Task} has been called off.",
    "Let's skip {task} entirely.",
    "We have decided against {task}, sorry.",
    "Don't go ahead with {task}.",
    "Scrap {task}, it is obsolete.",
    "OK wait, please don't do {task} any more.",
    "Actually we don't need {task} now.",
    "Let's hold off on {task}. Somebody else does it.",
    "Never mind about {task}!",
    "Sorry, {task} is cancelled.",
    "Leave it, we no longer want {task}.",
)


def revived_tasks() -> list[tuple[str, str]]:
    """The cancelled tasks that a later window lists as open, or as a note without a mark."""
    revived = []
    for wording in CANCELLATIONS:
        for task, short in TASKS:
            message = wording.format(task=short, Task=short[0].upper() + short[1:])
            if _is_revived(task, message):
                revived.append((task, message))
    return revived


def _is_revived(task: str, cancellation: str) -> bool:
    with conversation(SMALL_WINDOW) as talk:
        note = {"action": "add", "heading": "To do", "text": f"- {task}"}
        call = ToolCall("note_1", "notes", json.dumps(note))
        talk.append(
            user("Hello, we work on the shop today. Never touch the folder legacy."),
            assistant("Understood."),
            user(task),
            assistant(None, (call,)),
            tool_result(call.id, "Noted. The notebook has 60 of 8,000 bytes.", "notes", state="completed"),
            assistant("I will start with the first part. Is there a deadline?"),
            user(cancellation),
            assistant("Understood, I leave it."),
        )
        for step, request in enumerate(("Show me the open tickets.", "continue", "Now sum them up.")):
            look = ToolCall(f"look_{step}", "read_file", json.dumps({"path": f"tickets_{step}.txt"}))
            page = "\n".join(f"ticket {i}: a printer in room {i} is out of paper" for i in range(400))
            talk.append(
                user(request), assistant(None, (look,)), tool_result(look.id, page), assistant("Here they are.")
            )
            talk.roll_over()
            if _has_open(talk.messages, task):
                return True
    return False


def _has_open(messages: Sequence[Message], task: str) -> bool:
    handoff = next((handoff_of(m) for m in messages if m.kind == "handoff"), None)
    if handoff is None:
        raise RuntimeError("the window was not closed")
    sections = "\n".join(
        handoff.section(s) for s in ("Active Task", "In Progress", "Remaining Work", "Pending User Asks")
    )
    unmarked = [line for line in handoff.notebook.splitlines() if task in line and "[cancelled by the user" not in line]
    return task in sections or bool(unmarked)
