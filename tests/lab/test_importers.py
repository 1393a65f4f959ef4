"""The logs of other agents become sessions: texts, calls, results, times and usage, and nothing else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from perdure.cli.main import cli
from perdure.core.errors import ConfigError
from perdure.core.usage import CanonicalUsage
from perdure.lab.replay.importers import count_sessions, find_logs, parse_sessions, plain_messages, read_sessions
from perdure.lab.replay.sessions import RecordedSession, RecordedUsage, read_turns
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


def claude_code_tree() -> list[dict[str, Any]]:
    """A log as newer versions write it: two calls at once with results between them, and a prompt that was rewound."""

    def entry(name: str, parent: str | None, kind: str, content: Any, **message: Any) -> dict[str, Any]:
        body = {"role": kind, "content": content, **message}
        return {"type": kind, "uuid": name, "parentUuid": parent, "isSidechain": False, "message": body}

    def call(call_id: str) -> list[dict[str, Any]]:
        return [{"type": "tool_use", "id": call_id, "name": "Read", "input": {"file_path": f"{call_id}.py"}}]

    def result(call_id: str) -> list[dict[str, Any]]:
        return [{"type": "tool_result", "tool_use_id": call_id, "content": f"text of {call_id}"}]

    reply = {"id": "msg_1", "usage": {"input_tokens": 10, "output_tokens": 3}}
    error = entry("x", "g", "assistant", [{"type": "text", "text": "API Error"}], id="e", model="<synthetic>")
    output = "<local-command-stdout>done</local-command-stdout>"
    return [
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"trackedFileBackups": {}}},
        entry("0", None, "user", "<command-name>/review</command-name>\n<command-args>a.py</command-args>"),
        entry("1", "0", "user", output),
        entry("a", "1", "assistant", call("t1"), **reply),
        entry("b", "a", "user", result("t1")),
        entry("c", "a", "assistant", call("t2"), **reply),
        entry("d", "c", "user", result("t2")),
        entry("d", "c", "user", result("t2")),
        entry("e", "d", "user", "rewrite it all"),
        entry("f", "e", "assistant", "I rewrite it.", id="msg_2", usage={"input_tokens": 99}),
        entry("g", "d", "user", "leave it"),
        {**error, "isApiErrorMessage": True},
        {"type": "system", "subtype": "compact_boundary", "uuid": "y", "parentUuid": None, "logicalParentUuid": "g"},
        entry("h", "y", "assistant", "As you wish.", id="msg_3", usage={"input_tokens": 20, "output_tokens": 4}),
    ]


def test_of_a_claude_code_log_the_last_branch_counts_and_each_reply_once() -> None:
    session = read(claude_code_tree())
    texts = [m.body["content"] for m in session.messages]
    assert texts == ["/review a.py", "", "text of t1", "text of t2", "leave it", "As you wish."]
    assert [c["id"] for c in session.messages[1].body["tool_calls"]] == ["t1", "t2"]
    assert [u.input_tokens for u in session.usages] == [10, 20]


def test_a_claude_code_log_that_lacks_records_keeps_what_is_before_the_gap() -> None:
    rows = [row for row in claude_code_tree() if row.get("uuid") not in ("d", "y")]
    texts = [m.body["content"] for m in read(rows).messages]
    assert texts[0] == "/review a.py"
    assert texts[-1] == "As you wish."


@pytest.mark.parametrize(
    "row",
    [
        {
            "isSidechain": True,
            "type": "user",
            "uuid": "a",
            "sessionId": "s",
            "message": {"role": "user", "content": "x"},
        },
        {"type": "session_meta", "payload": {"id": "r", "source": {"subagent": {"thread_spawn": {"depth": 1}}}}},
        {"type": "session_meta", "payload": {"id": "r", "source": {"subagent": "review"}}},
        {"type": "session_meta", "payload": {"id": "r", "thread_source": "subagent", "source": "cli"}},
    ],
)
def test_the_log_of_a_sub_agent_is_left_out_and_called_so(row: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="work of a sub-agent"):
        read([row])


def test_a_fork_of_codex_has_an_id_of_its_own_and_writes_are_billed_apart() -> None:
    used = {"input_tokens": 100, "cached_input_tokens": 60, "cache_write_input_tokens": 30, "output_tokens": 5}
    event = {"type": "token_count", "info": {"last_token_usage": used}}
    reply = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    heads = [{"type": "session_meta", "payload": {"id": name, "source": "cli"}} for name in ("fork", "parent")]
    session = read([*heads, {"type": "response_item", "payload": reply}, {"type": "event_msg", "payload": event}])
    assert session.id == "fork"
    assert [(u.input_tokens, u.cache_read_tokens, u.cache_write_tokens) for u in session.usages] == [(10, 60, 30)]


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


def test_an_export_of_perdure_has_its_bill_and_handoffs_of_either_role_are_summaries(tmp_path: Path) -> None:
    usage = CanonicalUsage(7, 5, cache_read_tokens=90, cache_write_tokens=3)
    with open_store(tmp_path / "a.db") as store:
        stored = store.transfer.import_messages([{"role": "user", "content": "hi"}])
        lines = [json.loads(line) for line in store.transfer.export_jsonl(stored.id)]
    (row,) = [line for line in lines if "message" in line]
    bodies = [
        {"kind": "handoff", "body": {"role": "assistant", "content": "notes"}},
        {"kind": "message", "body": {"role": "assistant", "content": "hello"}},
    ]
    calls = [{"call": {"task": task, "usage": asdict(usage)}} for task in ("main", "compression")]
    lines[-1:] = [*({"message": {**row["message"], **body}} for body in bodies), *calls]
    session = read(lines)
    assert session.usages == (RecordedUsage(7, 5, 90, 3),) * 2
    (turn,) = read_turns(session)
    assert [(step.text, step.summary) for step in turn.steps] == [("hello", "notes")]


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


@pytest.mark.parametrize("head", [b"\xef\xbb\xbf", b"broken first line\n", b'{"type": "other"}\n', b"\xff\xfe\n"])
def test_a_log_with_a_spoiled_beginning_is_read(head: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(head + "".join(f"{json.dumps(row)}\n" for row in claude_code_log()).encode())
    (session,) = read_sessions(path)
    assert [row for row in outline(session) if row[1] != "Summary of it all."] == EXPECTED


@pytest.mark.parametrize("kind", ["export", "log"])
def test_a_text_with_other_line_ends_survives_an_import(kind: str, tmp_path: Path) -> None:
    text = "one\u2028two\u0085three\x1cfour"
    source, target = tmp_path / "log.jsonl", tmp_path / "b.db"
    if kind == "log":
        rows = [{"type": "session", "id": "p", "cwd": "/x"}, {"type": "message", "message": {"role": "user"}}]
        rows[1]["message"]["content"] = text
        source.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    else:
        with open_store(tmp_path / "a.db") as store:
            stored = store.transfer.import_messages([{"role": "user", "content": text}])
            source.write_text("\n".join(store.transfer.export_jsonl(stored.id)), encoding="utf-8")
    result = CliRunner().invoke(cli, ["--set", f"store.path={target}", "sessions", "import", str(source)])
    assert result.exit_code == 0, result.output
    with open_store(target) as store:
        (message,) = store.transfer.export_messages(result.stdout.split()[0])
    assert message["content"] == text


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
