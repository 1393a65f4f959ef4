"""The logs of other agents become sessions: texts, calls, results, times and usage, and nothing else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import ConfigError
from perdure.lab.replay.importers import count_sessions, find_logs, parse_sessions, plain_messages, read_sessions
from perdure.lab.replay.sessions import RecordedSession
from perdure.store.store import open_store
from support.recorded import as_json, assistant, recorded_session


def read(rows: Iterable[dict[str, Any]]) -> RecordedSession:
    (session,) = parse_sessions([f"{json.dumps(row)}\n" for row in rows], name="log")
    return session


def outline(session: RecordedSession) -> list[tuple[str, str]]:
    return [
        (m.body["role"], m.body.get("content") or m.body["tool_calls"][0]["function"]["name"]) for m in session.messages
    ]


EXPECTED = [("user", "fix it"), ("assistant", "I look."), ("tool", "x = 1"), ("assistant", "Fixed.")]


def claude_code_log() -> list[dict[str, Any]]:
    def entry(kind: str, message: dict[str, Any], second: int, **more: Any) -> dict[str, Any]:
        stamp = f"2026-02-13T21:53:{second:02}.000Z"
        return {"type": kind, "message": message, "timestamp": stamp, "sessionId": "s-1", "uuid": f"u{second}", **more}

    usage = {"input_tokens": 4, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 50, "output_tokens": 7}
    usage = {**usage, "cache_creation": {"ephemeral_1h_input_tokens": 50}}
    reply = {"role": "assistant", "id": "msg_1", "model": "claude-sonnet-4-5", "usage": usage}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "a.py"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "x = 1"}]}
    last = {"role": "assistant", "id": "msg_2", "content": [{"type": "text", "text": "Fixed."}]}
    return [
        {"type": "summary", "summary": "an older title", "leafUuid": "u0"},
        entry("user", {"role": "user", "content": "fix it"}, 1),
        entry("user", {"role": "user", "content": "<local-command-caveat>"}, 2, isMeta=True),
        entry("assistant", {**reply, "content": [{"type": "thinking", "thinking": "hm"}]}, 3),
        entry("assistant", {**reply, "content": [{"type": "text", "text": "I look."}]}, 4),
        entry("assistant", {**reply, "content": [call]}, 5),
        entry("assistant", {"role": "assistant", "id": "side", "content": "sub-agent"}, 6, isSidechain=True),
        entry("user", {"role": "user", "content": [result]}, 7),
        entry("user", {"role": "user", "content": "Summary of it all."}, 8, isCompactSummary=True),
        entry("assistant", last, 9),
    ]


def test_claude_code_replies_are_put_together_and_summaries_recognised() -> None:
    session = read(claude_code_log())
    assert (session.id, session.source, session.model) == ("s-1", "claude-code", "claude-sonnet-4-5")
    assert [row for row in outline(session) if row[1] != "Summary of it all."] == EXPECTED
    assert [m.is_summary for m in session.messages] == [False, False, False, True, False]
    reply = session.messages[1]
    assert reply.body["thinking"] == "hm"
    assert reply.body["tool_calls"][0]["id"] == "toolu_1"
    assert reply.usage is not None
    assert (reply.usage.cache_read_tokens, reply.usage.cache_write_1h_tokens) == (900, 50)
    assert session.messages[0].at_s == pytest.approx(1_771_019_581.0)


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_codex_items_become_messages_in_both_formats(is_wrapped: bool) -> None:
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix it"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "name": "shell", "arguments": '{"command": ["cat"]}', "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "x = 1"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Fixed."}]},
    ]
    stamp = "2026-01-01T00:00:00Z"
    rows: list[dict[str, Any]] = [{"id": "r-1", "timestamp": stamp, "instructions": None}, *items]
    if is_wrapped:
        meta = {"timestamp": stamp, "type": "session_meta", "payload": {"id": "r-1", "cwd": "/x"}}
        context = {"timestamp": stamp, "type": "turn_context", "payload": {"model": "gpt-5-codex"}}
        rows = [meta, context, *({"timestamp": stamp, "type": "response_item", "payload": item} for item in items)]
        used = {"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 5}
        event = {"type": "token_count", "info": {"last_token_usage": used}}
        rows.append({"timestamp": stamp, "type": "event_msg", "payload": event})
    session = read(rows)
    assert (session.id, session.source) == ("r-1", "codex")
    assert outline(session) == EXPECTED
    assert session.messages[1].body["thinking"] == "hm"
    if is_wrapped:
        assert session.model == "gpt-5-codex"
        usage = session.messages[-1].usage
        assert usage is not None
        assert (usage.input_tokens, usage.cache_read_tokens) == (40, 60)


def test_a_codex_compaction_is_a_summary() -> None:
    compacted = {"type": "compacted", "payload": {"message": "So far: nothing."}}
    question = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}
    session = read(
        [{"type": "session_meta", "payload": {"id": "r"}}, compacted, {"type": "response_item", "payload": question}]
    )
    assert [m.is_summary for m in session.messages] == [True, False]


def test_of_a_pi_session_the_last_branch_counts() -> None:
    def entry(entry_id: str, parent: str | None, message: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "message",
            "id": entry_id,
            "parentId": parent,
            "timestamp": "2026-01-01T00:00:00Z",
            "message": message,
        }

    call = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "a.py"}}
    usage = {"input": 3, "output": 4, "cacheRead": 5, "cacheWrite": 6, "totalTokens": 18}
    reply = {"role": "assistant", "model": "m", "usage": usage, "content": [{"type": "text", "text": "I look."}, call]}
    result = {
        "role": "toolResult",
        "toolCallId": "t1",
        "toolName": "read",
        "content": [{"type": "text", "text": "x = 1"}],
    }
    session = read(
        [
            {"type": "session", "version": 3, "id": "p-1", "cwd": "/x"},
            entry("a", None, {"role": "user", "content": [{"type": "text", "text": "fix it"}]}),
            entry("b", "a", {"role": "assistant", "content": [{"type": "text", "text": "abandoned"}]}),
            entry("c", "a", reply),
            entry("d", "c", result),
            {"type": "compaction", "id": "e", "parentId": "d", "summary": "short", "firstKeptEntryId": "c"},
            entry("f", "e", {"role": "assistant", "content": [{"type": "text", "text": "Fixed."}]}),
        ]
    )
    assert (session.id, session.source, session.model) == ("p-1", "pi", "m")
    assert [row for row in outline(session) if "compacted" not in row[1]] == EXPECTED
    assert [m.is_summary for m in session.messages] == [False, False, False, True, False]
    assert session.messages[1].usage is not None


def test_an_export_of_perdure_is_read_with_its_times_and_prompt(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        rows = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "fix it"},
            assistant("I look.", "c1", "read", {"path": "a.py"}),
            {"role": "tool", "tool_call_id": "c1", "content": "x = 1"},
            {"role": "assistant", "content": "Fixed."},
        ]
        stored = store.transfer.import_messages(rows)
        lines = [f"{line}\n" for line in store.transfer.export_jsonl(stored.id)]
    (session,) = parse_sessions(lines, name="log")
    assert (session.id, session.source) == (stored.conversation_id, "perdure")
    assert session.system_prompt == "Be brief."
    assert outline(session) == EXPECTED
    assert session.has_times


def test_openai_style_messages_come_as_a_list_a_line_each_or_a_session_a_line(tmp_path: Path) -> None:
    made = recorded_session(1, seconds=None)
    rows = [dict(m.body) for m in made.messages]
    shapes = {
        "list.json": as_json(made),
        "indented.json": json.dumps({"messages": rows}, indent=2),
        "lines.jsonl": "\n".join(json.dumps(row) for row in rows),
        "sessions.jsonl": "\n".join(json.dumps({"id": f"s{n}", "messages": rows}) for n in range(3)),
    }
    for name, text in shapes.items():
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(text.encode()))
        sessions = list(read_sessions(path))
        assert len(sessions) == count_sessions(path) == (3 if name == "sessions.jsonl" else 1), name
        assert [m.body for m in sessions[0].messages] == rows, name
    assert [p.name for p in find_logs([tmp_path])] == sorted(f"{name}.gz" for name in shapes)


def test_times_and_usage_may_lie_in_a_file_beside_the_log(tmp_path: Path) -> None:
    rows = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    usage = {"input_tokens": 1, "cache_creation_input_tokens": 2, "cache_creation_1h": 2, "output_tokens": 3}
    beside = {"id": "s", "times": ["2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"], "usage": [None, usage]}
    (tmp_path / "log.jsonl").write_text(json.dumps({"id": "s", "messages": rows}), encoding="utf-8")
    (tmp_path / "log_usage.jsonl").write_text(json.dumps(beside), encoding="utf-8")
    (session,) = read_sessions(tmp_path / "log.jsonl")
    first, second = session.messages
    assert (second.at_s or 0) - (first.at_s or 0) == 5
    assert [u.cache_write_1h_tokens for u in session.usages] == [2]


def test_what_is_imported_into_a_store_has_no_summaries_and_no_reasoning() -> None:
    rows = plain_messages(read(claude_code_log()))
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant"]
    assert all("thinking" not in row for row in rows)


@pytest.mark.parametrize("text", ["", "{}", "[]", "hello", '{"type": "other"}', "\x00\x01"])
def test_what_is_no_log_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="no format"):
        list(read_sessions(path))
