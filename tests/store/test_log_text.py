"""Every character of a log is at most two calls away: a description, then an address with a cursor."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from perdure.core.errors import NotFound, ToolError
from perdure.core.messages import Message, ToolCall, assistant, tool_result, user
from perdure.store.records import NewHandoff, Span
from perdure.store.store import SessionStore, open_store
from perdure.tools.builtin.agent_tools import SessionSearch
from perdure.tools.builtin.log_tools import LogTools
from perdure.tools.output_limits import OutputLimiter, OutputLimits, ToolOutcome
from perdure.tools.tool import ToolContext, ToolReply

PAGE_CHARS = 700
WORDS = ("ledger", "möwe", "日本語", "x = 1", "\n", "→ [m:3 · user]", "output:o_1", "🙂", "a" * 90, "{}")


def _text(draw: random.Random, most: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, most)))


class RandomLog:
    """A conversation with stored outputs and compactions, and everything that was put into it."""

    def __init__(self, store: SessionStore, seed: int) -> None:
        self.draw = random.Random(seed)
        self.store = store
        self.session = store.create(system_prompt="")
        self.limiter = OutputLimiter(store.outputs, OutputLimits(400, 800, 100))
        self.texts: list[str] = []
        self.outputs: list[str] = []
        for step in range(self.draw.randrange(2, 14)):
            self._add(step)

    def _add(self, step: int) -> None:
        draw = self.draw
        asked, arguments = _text(draw, 30), json.dumps({"text": _text(draw, 20)})
        # Some models repeat the ids of their calls.
        calls = [ToolCall(f"call_{n if draw.random() < 0.5 else f'{step}_{n}'}", "look", arguments) for n in range(2)]
        results: list[Message] = []
        for call in calls:
            output = _text(draw, 60)
            outcome = self.limiter.limit_result(ToolOutcome(None, call.id, ToolReply(output)), self.session.id)
            if outcome.spilled is not None:
                self.outputs.append(output)
            results.append(tool_result(call.id, outcome.reply.text, "look"))
        messages = [user(asked), assistant(asked[::-1], tuple(calls)), *results, assistant(_text(draw, 9))]
        self.texts += [m.text for m in messages] + [arguments]
        self.store.append(self.session.id, messages)
        if draw.random() < 0.3:
            last = self.store.conversations.get(self.session.id).last_seq
            handoff = NewHandoff(Message("user", f"handoff {step}", kind="handoff"))
            self.session = self.store.compact(self.session.id, (handoff, Span(last, last)))


def _number(text: str, pattern: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, text[:200]
    return int(found[1].replace(",", ""))


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return open_store(tmp_path / "p.db")


def _tools(store: SessionStore) -> LogTools:
    return LogTools(SessionSearch(store.search_index), store.addresses, page_chars=PAGE_CHARS)


@pytest.mark.spec("M4")
@pytest.mark.parametrize("seed", range(12))
def test_every_character_is_two_calls_away(store: SessionStore, seed: int) -> None:
    with store:
        log = RandomLog(store, seed)
        tools, context = _tools(store), ToolContext("c", conversation_id=log.session.conversation_id)
        described = tools.lcm_describe(context).text
        address = described.split(" ", 1)[0]
        total = _number(described, r"has ([\d,]+) characters")
        whole = store.addresses.expand(address, conversation_id=log.session.id, limit=10**9)
        assert (len(whole.text), whole.next_offset) == (total, None)
        assert all(text in whole.text for text in log.texts), "messages and arguments"
        assert all(output in whole.text for output in log.outputs), "stored outputs"
        for _ in range(25):
            at = log.draw.randrange(total)
            page = tools.lcm_expand(context, address, cursor=at).text
            assert page.startswith(whole.text[at : at + PAGE_CHARS])


@pytest.mark.spec("M4")
@pytest.mark.parametrize("seed", range(4))
def test_the_offsets_of_a_description_are_those_of_the_text(store: SessionStore, seed: int) -> None:
    with store:
        log = RandomLog(store, seed)
        browse, conversation = store.addresses, log.session.conversation_id
        windows = browse.windows(conversation)
        assert [lo for lo, _ in windows[1:]] == [hi + 1 for _, hi in windows[:-1]], "no message is in no window"
        top = browse.describe(conversation_id=conversation)
        whole = browse.expand(top.address, conversation_id=conversation, limit=10**9).text
        for window in top.items:
            text = browse.expand(window.address, conversation_id=conversation, limit=10**9).text
            assert whole[window.offset : window.offset + window.chars] == text
            outline = browse.describe(window.address, conversation_id=conversation)
            for item in outline.items:
                message = browse.expand(item.address, conversation_id=conversation, limit=10**9).text
                assert text[item.offset : item.offset + item.chars] == message


def test_descriptions_are_paged(store: SessionStore) -> None:
    with store:
        session = store.create(system_prompt="")
        store.append(
            session.id, [user(f"question {n}") if n % 2 == 0 else assistant(f"answer {n}") for n in range(250)]
        )
        tools, context = _tools(store), ToolContext("c", conversation_id=session.conversation_id)
        pages = [tools.lcm_describe(context, "m:1-250", cursor=at).text for at in (0, 100, 200)]
        assert [page.count("\nm:") for page in pages] == [100, 100, 50]
        assert "cursor=100 lists more" in pages[0]
        assert "lists more" not in pages[2]
        assert "\nm:101 @" in pages[1]


@pytest.mark.spec("M4")
def test_a_search_finds_earlier_windows_and_addresses_that_do_not_exist_are_refused(store: SessionStore) -> None:
    with store:
        session = store.create(system_prompt="")
        store.append(session.id, [user("The vault code is KESTREL-9."), assistant("Noted."), user("Go on.")])
        other = store.create(system_prompt="")
        store.append(other.id, [user("Another vault code.")])
        child = store.compact(session.id, (NewHandoff(Message("user", "notes", kind="handoff")), Span(3, 3)))
        tools, context = _tools(store), ToolContext("c", conversation_id=child.conversation_id)
        hits = tools.lcm_grep(context, "vault code").text
        assert "m:1 · user" in hits
        assert other.conversation_id not in hits
        assert store.addresses.windows(child.id) == ((1, 3), (4, 4))
        assert "KESTREL-9" in tools.lcm_expand(context, "w:1").text
        for address in ("w:3", "m:99", "nonsense", "output:o_none"):
            with pytest.raises(ToolError):
                tools.lcm_expand(context, address)
            with pytest.raises(ToolError):
                tools.lcm_describe(context, address)


def test_an_undone_compaction_and_an_edited_handoff_begin_no_window(store: SessionStore) -> None:
    with store:
        session = store.create(system_prompt="")
        store.append(session.id, [user("one"), assistant("two"), user("three")])
        handoff = Message("user", "notes", kind="handoff")
        store.compact(session.id, (NewHandoff(handoff), Span(3, 3)))
        store.undo(session.id)
        assert store.addresses.windows(session.id) == ((1, 4),)
        tip = store.compact(session.id, (NewHandoff(handoff), Span(3, 3)))
        edited = NewHandoff(handoff.with_content("edited"), check={"edited": True})
        store.compactions.compact(tip.id, (edited, Span(3, 3)), began_by="edit")
        assert store.addresses.windows(session.id) == ((1, 4), (5, 6))


def test_another_users_log_cannot_be_opened(store: SessionStore) -> None:
    with store:
        mine = store.create(system_prompt="", user_key="anna")
        theirs = store.create(system_prompt="", user_key="ben")
        for session in (mine, theirs):
            store.append(session.id, [user("a secret")])
        for address in (f"{theirs.conversation_id}/m:1", f"{theirs.conversation_id}/w:1"):
            with pytest.raises(NotFound):
                store.addresses.expand(address, conversation_id=mine.conversation_id)
            with pytest.raises(NotFound):
                store.addresses.describe(address, conversation_id=mine.conversation_id)


@pytest.mark.spec("M4")
@pytest.mark.parametrize("lines", [9_000, 200_000], ids=["indexed", "scanned"])
def test_a_result_in_a_long_output_names_the_character_to_open_it_at(store: SessionStore, lines: int) -> None:
    with store:
        session = store.create(system_prompt="")
        output = "\n".join(
            "plain line of a log" if n != lines - 500 else "worker kestrel stopped" for n in range(lines)
        )
        sink = store.outputs.begin(session.id, "call_1")
        sink.write(output)
        sink.close()
        store.append(session.id, [user("look"), assistant("Looked."), user("And?")])
        tools, context = _tools(store), ToolContext("c", conversation_id=session.conversation_id)
        hits = tools.lcm_grep(context, "kestrel").text
        address, cursor = re.findall(r"(output:\w+) .*from character (\d+)", hits)[0]
        assert (
            "worker kestrel stopped"
            in store.addresses.expand(address, conversation_id=session.id, offset=int(cursor), limit=2_000).text
        )
