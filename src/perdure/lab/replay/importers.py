"""Read sessions from the logs of agents: Perdure exports, OpenAI-style messages, Claude Code, Codex and pi.

Taken are what the user wrote, the replies with their reasoning where it is readable, tool calls and results, times, and
the usage that was billed. Left out are images, the work of sub-agents, abandoned branches and notices of the agent to
itself. Files may be compressed with gzip; a file with one session per line is read line by line.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TextIO

from perdure.core.errors import ConfigError
from perdure.lab.replay.sessions import RecordedMessage, RecordedSession, RecordedUsage, message_text

Record = dict[str, Any]
Format = Literal["perdure", "openai", "claude-code", "codex", "pi"]
_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
# Texts that Codex adds to a user's message by itself.
_CODEX_NOTICES = ("<environment_context>", "<user_instructions>", "<turn_aborted>", "# AGENTS.md instructions")
# Output of local commands in Claude Code, which is not part of a request to the model.
_CLAUDE_NOTICES = ("<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>")
_CLAUDE_COMMAND = re.compile(r"<command-(name|args)>(.*?)</command-\1>", re.DOTALL)
_CODEX_ITEMS = frozenset(
    (
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
    )
)
_UNKNOWN = "the log is in no format that is known here: Perdure, OpenAI-style, Claude Code, Codex or pi"
_SUB_AGENT = "the log holds only the work of a sub-agent, which is left out"
_USAGE_KEYS = tuple(field.name for field in fields(RecordedUsage))
# A log may begin with records that do not show its format, such as snapshots of files.
_MOST_UNKNOWN = 200
_PI_SUMMARY = "The conversation history before this point was compacted into the following summary:\n\n"


def find_logs(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that paths name; for a folder, every log in it, sorted. Raises ConfigError for a missing path."""
    for path in paths:
        if path.is_dir():
            logs = sorted(p for p in path.rglob("*") if p.name.endswith(_SUFFIXES) and "_usage.json" not in p.name)
            if not logs:
                raise ConfigError(f"no logs found in {path}: none of its files ends in {', '.join(_SUFFIXES)}")
            yield from logs
        elif path.is_file():
            yield path
        else:
            stored = str(path)
            hint = f"; of a stored conversation: perdure sessions export {stored} -o talk.jsonl"
            raise ConfigError(f"there is no file {path}{hint if stored.startswith(('c_', 's_')) else ''}")


def count_sessions(path: Path) -> int:
    """Return how many sessions a file holds, without reading them: one, or one for each line."""
    try:
        with open_log(path, errors="replace") as lines:
            first = next((line for line in lines if line.strip()), "")
            record = _parse(first)
            has_rows = isinstance(record, dict) and "messages" in record
            return 1 + (sum(1 for line in lines if line.strip()) if has_rows else 0)
    except (OSError, EOFError):
        return 1


def _ignore_line(number: int) -> None:
    """Skip a line without counting it."""


def read_sessions(path: Path, *, on_skip: Callable[[int], None] = _ignore_line) -> Iterator[RecordedSession]:
    """Yield the sessions of a file. Raises ConfigError for one in no known format."""
    try:
        # A byte that is not UTF-8 spoils a word, not the session.
        with open_log(path, errors="replace") as lines:
            yield from parse_sessions(lines, name=_stem(path), usages=_UsageFile.beside(path), on_skip=on_skip)
    except (OSError, EOFError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def parse_sessions(
    lines: Iterable[str],
    *,
    name: str,
    usages: _UsageFile | None = None,
    on_skip: Callable[[int], None] = _ignore_line,
) -> Iterator[RecordedSession]:
    """Yield the sessions in the lines of a file; `name` is the id of a session that has none.

    `on_skip` gets the number of each line that is not a JSON object.
    """
    rows = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    first = next(rows, (1, ""))
    if not isinstance(_parse(first[1]), dict):
        # One value over many lines, or a log whose first line is broken.
        listed = [first, *rows]
        whole = _parse("".join(line for _, line in listed))
        if isinstance(whole, list) and whole:
            yield _from_messages({"id": name, "messages": whole})
            return
        records = iter((whole,)) if isinstance(whole, dict) else _objects(listed, on_skip)
    else:
        records = _objects(chain((first,), rows), on_skip)
    kind, records = _with_format(records)
    first_record = next(records)
    records = chain((first_record,), records)
    if kind == "openai" and "messages" in first_record:
        for number, row in enumerate(records):
            yield _from_messages({"id": f"{name}-{number}", **row}, usages)
        return
    yield _READERS[kind](list(records), name)


def _with_format(records: Iterator[Record]) -> tuple[Format, Iterator[Record]]:
    """Return the format of a log, and an iterator over its records from the first that shows it. Raises ConfigError."""
    for record in islice(records, _MOST_UNKNOWN):
        if (kind := _format_of(record)) is not None:
            return kind, chain((record,), records)
    raise ConfigError(_UNKNOWN)


def _objects(rows: Iterable[tuple[int, str]], on_skip: Callable[[int], None]) -> Iterator[Record]:
    for number, line in rows:
        record = _parse(line)
        if isinstance(record, dict):
            yield record
        elif line.strip():
            on_skip(number)


def _format_of(record: Mapping[str, Any]) -> Format | None:
    """Return the format of a JSON record by its keys; None where no key identifies one."""
    kind = record.get("type")
    if record.get("perdure") == "conversation":
        return "perdure"
    if "messages" in record or record.get("role") in ("system", "developer", "user", "assistant"):
        return "openai"
    if kind in ("session_meta", "response_item", "turn_context", "event_msg") or kind in _CODEX_ITEMS:
        return "codex"
    if "instructions" in record and "timestamp" in record and kind is None:
        return "codex"
    if kind == "session" and ("cwd" in record or "version" in record):
        return "pi"
    if {"sessionId", "leafUuid", "uuid", "parentUuid"} & set(record):
        return "claude-code"
    return None


class _UsageFile:
    """Times and usage of messages by session id, read from a file next to the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, Record] | None = None

    @classmethod
    def beside(cls, path: Path) -> _UsageFile | None:
        """Return the usage file `NAME_usage.jsonl` next to `NAME.jsonl`, compressed or not; None if there is none."""
        stem = path.name.removesuffix(".gz").removesuffix(".jsonl")
        candidates = (path.with_name(f"{stem}_usage.jsonl{end}") for end in ("", ".gz"))
        return next((cls(file) for file in candidates if file.is_file()), None)

    def get(self, session_id: str) -> Mapping[str, Any]:
        if self._rows is None:
            with open_log(self._path) as lines:
                rows = [r for r in map(_parse, lines) if isinstance(r, dict)]
            self._rows = {str(row.get("id")): row for row in rows}
        return self._rows.get(session_id, {})


def open_log(path: Path, *, errors: str = "strict") -> TextIO:
    """Open a log as text, decompressed; a byte order mark is left out."""
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", errors=errors)
    return path.open(encoding="utf-8-sig", errors=errors)


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")


def _parse(line: str) -> Any:
    """Return the value of a JSON text; None for anything else, such as a last line that was cut off."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _seconds(value: object) -> float | None:
    """Return a time in ISO format, in seconds or in milliseconds, as seconds since the epoch."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1_000 if value > 1e11 else float(value)
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def _count(raw: Mapping[str, Any], *keys: str) -> int:
    value = next((raw[k] for k in keys if isinstance(raw.get(k), int)), 0)
    return max(0, value)


def _anthropic_usage(raw: object) -> RecordedUsage | None:
    if not isinstance(raw, Mapping) or not raw:
        return None
    split = raw.get("cache_creation")
    hour_writes = split.get("ephemeral_1h_input_tokens") if isinstance(split, Mapping) else raw.get("cache_creation_1h")
    return RecordedUsage(
        input_tokens=_count(raw, "input_tokens"),
        output_tokens=_count(raw, "output_tokens"),
        cache_read_tokens=_count(raw, "cache_read_input_tokens"),
        cache_write_tokens=_count(raw, "cache_creation_input_tokens"),
        cache_write_1h_tokens=hour_writes if isinstance(hour_writes, int) else 0,
    )


def _from_messages(raw: Mapping[str, Any], usages: _UsageFile | None = None) -> RecordedSession:
    """Build a session from OpenAI-style messages, with `times`, `usage` and `compaction_msgs` by index if given."""
    session_id = str(raw.get("id"))
    beside = usages.get(session_id) if usages is not None else {}
    rows = [m if isinstance(m, Mapping) else {"role": "user", "content": str(m)} for m in raw.get("messages") or ()]
    times = _align_values(beside.get("times", raw.get("times")), len(rows))
    used = _align_values(beside.get("usage", raw.get("usage")), len(rows))
    summaries = set(raw.get("compaction_msgs") or ())
    messages = []
    for i, body in enumerate(rows):
        at_s = _seconds(times[i] if times[i] is not None else body.get("timestamp") or body.get("created_at"))
        messages.append(RecordedMessage(body, at_s, _anthropic_usage(used[i]), is_summary=i in summaries))
    system = [message_text(m.body) for m in messages if m.body.get("role") in ("system", "developer")]
    return RecordedSession(session_id, tuple(messages), "openai", str(raw.get("model") or ""), "\n\n".join(system))


def _align_values(values: object, count: int) -> Sequence[Any]:
    return values if isinstance(values, list) and len(values) == count else [None] * count


def _read_message_lines(records: list[Record], name: str) -> RecordedSession:
    return _from_messages({"id": name, "messages": records})


def _read_perdure(records: list[Record], name: str) -> RecordedSession:
    """Build a session from the records of `perdure sessions export`."""
    conversation = records[0].get("conversation") or {}
    prompts = [r["session"].get("system_prompt", "") for r in records if isinstance(r.get("session"), dict)]
    models = [(r["session"].get("route") or {}).get("model", "") for r in records if isinstance(r.get("session"), dict)]
    rows = [r["message"] for r in records if isinstance(r.get("message"), dict)]
    messages = [
        RecordedMessage(row["body"], _seconds(row.get("created_at_ms")), is_summary=row.get("kind") == "handoff")
        for row in rows
        if row.get("kind") != "system" and isinstance(row.get("body"), dict)
    ]
    session_id, model = str(conversation.get("id") or name), next(filter(None, models), "")
    calls = [r["call"]["usage"] for r in records if isinstance(r.get("call"), dict) and r["call"].get("usage")]
    billed = tuple(RecordedUsage(*(_count(u, key) for key in _USAGE_KEYS)) for u in calls if u.get("reported"))
    prompt = next(filter(None, prompts), "")
    return RecordedSession(session_id, tuple(messages), "perdure", model, prompt, billed)


@dataclass(slots=True)
class _MessageBuilder:
    """Collects the pieces of one reply, which logs write as several records."""

    texts: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: list[Record] = field(default_factory=list)
    at_s: float | None = None
    usage: RecordedUsage | None = None

    def add_call(self, call_id: object, name: object, arguments: object) -> None:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
        function = {"name": str(name or "tool"), "arguments": text}
        self.calls.append({"id": str(call_id or ""), "type": "function", "function": function})

    @property
    def is_empty(self) -> bool:
        return not (self.texts or self.calls or self.thinking)

    def build(self) -> RecordedMessage:
        body: Record = {"role": "assistant", "content": "\n\n".join(self.texts)}
        if self.thinking:
            body["thinking"] = "\n\n".join(self.thinking)
        if self.calls:
            body["tool_calls"] = self.calls
        return RecordedMessage(body, self.at_s, self.usage)


def _result(call_id: object, text: str, at_s: float | None) -> RecordedMessage:
    return RecordedMessage({"role": "tool", "tool_call_id": str(call_id or ""), "content": text}, at_s)


def _parts_text(content: object) -> str:
    """Return the text of content that is a string, or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (p if isinstance(p, str) else p.get("text") for p in parts if isinstance(p, Mapping | str))
    return "\n".join(str(text) for text in texts if text)


def _read_claude_code(records: list[Record], name: str) -> RecordedSession:
    """Parse a transcript of Claude Code: a tree of JSON records, of which the session takes the last branch."""
    session_id, model = name, ""
    collector = _ReplyCollector()
    for record in _claude_branch(records):
        inner = record.get("message")
        if record.get("isMeta") or record.get("isApiErrorMessage") or not isinstance(inner, Mapping):
            continue
        session_id = str(record.get("sessionId") or session_id)
        at_s = _seconds(record.get("timestamp"))
        if record.get("type") == "assistant":
            model = str(inner.get("model") or model)
            collector.add_reply(inner, at_s)
        elif record.get("type") == "user":
            collector.add_user(inner.get("content"), at_s, is_summary=bool(record.get("isCompactSummary")))
    collector.flush()
    if not collector.messages and any(r.get("isSidechain") for r in records):
        raise ConfigError(_SUB_AGENT)
    return RecordedSession(session_id, tuple(collector.messages), "claude-code", model)


class _ReplyCollector:
    """Merges the records of a response, which share its id; tool results may be logged between them."""

    def __init__(self) -> None:
        self.messages: list[RecordedMessage] = []
        self._reply = _MessageBuilder()
        self._reply_id = ""
        self._results: list[RecordedMessage] = []
        self._billed: set[str] = set()

    def add_reply(self, inner: Mapping[str, Any], at_s: float | None) -> None:
        reply_id = str(inner.get("id") or "")
        if reply_id != self._reply_id or not reply_id:
            self.flush()
        self._reply_id = reply_id
        self._reply.at_s = at_s
        # Every record repeats the token usage of its response; the last one is complete.
        if reply_id not in self._billed:
            self._reply.usage = _anthropic_usage(inner.get("usage")) or self._reply.usage
        _add_blocks(self._reply, inner.get("content"))

    def add_user(self, content: object, at_s: float | None, *, is_summary: bool) -> None:
        for block in content if isinstance(content, list) else ():
            if isinstance(block, Mapping) and block.get("type") == "tool_result":
                self._results.append(_result(block.get("tool_use_id"), _parts_text(block.get("content")), at_s))
        text = _typed_text(_parts_text(content))
        if text.strip():
            self.flush()
            self.messages.append(RecordedMessage({"role": "user", "content": text}, at_s, is_summary=is_summary))

    def flush(self) -> None:
        """Append the pending response and the tool results that belong to it."""
        if not self._reply.is_empty:
            self.messages.append(self._reply.build())
            self._billed |= {self._reply_id} - {""}
        self.messages += self._results
        self._reply, self._results = _MessageBuilder(), []


def _typed_text(text: str) -> str:
    """Return the slash command with its arguments as it was typed; an empty string for the output of a command."""
    if text.lstrip().startswith(_CLAUDE_NOTICES):
        return ""
    parts = dict(_CLAUDE_COMMAND.findall(text)) if text.lstrip().startswith("<command-") else {}
    return f"{parts['name']} {parts.get('args', '')}".strip() if "name" in parts else text


def _claude_branch(records: Sequence[Record]) -> list[Record]:
    """Return the records of the branch that the last message ends, each once and without sub-agents, in their order.

    Of calls that were made together only the last result is an ancestor of what follows: the results of all calls of
    the branch belong to it, too.
    """
    rows = list({r.get("uuid") or n: r for n, r in enumerate(records) if not r.get("isSidechain")}.values())
    if not any(r.get("parentUuid") for r in rows):
        return rows
    by_id = {r["uuid"]: n for n, r in enumerate(rows) if r.get("uuid")}
    path: set[int] = set()
    n = next((n for n in range(len(rows) - 1, -1, -1) if rows[n].get("type") in ("user", "assistant")), -1)
    while n >= 0 and n not in path:
        path.add(n)
        n = _claude_parent(rows, n, by_id)
    replies = {_inner(rows[n].get("message"), "id") for n in path if rows[n].get("type") == "assistant"} - {None}
    path |= {n for n, r in enumerate(rows) if r.get("message") and _inner(r["message"], "id") in replies}
    calls = {b.get("id") for n in path for b in _blocks(rows[n]) if b.get("type") == "tool_use"}
    return [
        row
        for n, row in enumerate(rows)
        if n in path or any(b.get("type") == "tool_result" and b.get("tool_use_id") in calls for b in _blocks(row))
    ]


def _claude_parent(rows: Sequence[Record], n: int, by_id: Mapping[str, int]) -> int:
    """Return the index of a record's parent; -1 for the root of a branch."""
    row = rows[n]
    parent = str(row.get("parentUuid") or row.get("logicalParentUuid") or "")
    if parent in by_id:
        return by_id[parent]
    # A compaction begins a new tree, and a log may lack a record: what lies before it belongs to the branch.
    is_cut = row.get("isCompactSummary") or row.get("subtype") == "compact_boundary"
    return n - 1 if parent or is_cut or "parentUuid" not in row else -1


def _blocks(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = _inner(record.get("message"), "content")
    return [b for b in content if isinstance(b, Mapping)] if isinstance(content, list) else []


def _add_blocks(reply: _MessageBuilder, content: object) -> None:
    for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text" and block.get("text"):
            reply.texts.append(str(block["text"]))
        elif kind == "thinking" and block.get("thinking"):
            reply.thinking.append(str(block["thinking"]))
        elif kind in ("tool_use", "toolCall"):
            reply.add_call(block.get("id"), block.get("name"), block.get("input", block.get("arguments")))


def _read_codex(records: list[Record], name: str) -> RecordedSession:
    """Build a session from a rollout of Codex; older ones have the items without records around them."""
    messages: list[RecordedMessage] = []
    reply, model, session_id = _MessageBuilder(), "", ""
    for record in records:
        payload = record.get("payload")
        item: Mapping[str, Any] = payload if isinstance(payload, Mapping) else record
        kind, at_s = str(item.get("type") or ""), _seconds(record.get("timestamp"))
        if record.get("type") == "session_meta" or (kind == "" and "instructions" in record):
            # A fork repeats the head of its parent after its own.
            if not session_id and "subagent" in (item.get("thread_source"), *_keys(item.get("source"))):
                raise ConfigError(_SUB_AGENT)
            session_id = session_id or str(item.get("id") or name)
        elif record.get("type") == "turn_context":
            model = str(item.get("model") or model)
        elif record.get("type") == "event_msg":
            _set_codex_usage(messages, reply, item)
        elif record.get("type") == "compacted":
            _flush(messages, reply)
            reply = _MessageBuilder()
            summary = {"role": "user", "content": str(item.get("message") or "(compacted)")}
            messages.append(RecordedMessage(summary, at_s, is_summary=True))
        elif kind in _CODEX_ITEMS:
            reply = _add_codex_item(messages, reply, item, at_s)
    _flush(messages, reply)
    return RecordedSession(session_id or name, tuple(messages), "codex", model)


def _flush(messages: list[RecordedMessage], reply: _MessageBuilder) -> None:
    if not reply.is_empty:
        messages.append(reply.build())


def _add_codex_item(
    messages: list[RecordedMessage], reply: _MessageBuilder, item: Mapping[str, Any], at_s: float | None
) -> _MessageBuilder:
    """Add an item to the reply it belongs to, or end that reply; return the reply to continue with."""
    kind = item["type"]
    if kind.endswith("_output"):
        _flush(messages, reply)
        output = item.get("output")
        text = output if isinstance(output, str) else _parts_text(_inner(output, "content"))
        messages.append(_result(item.get("call_id"), text or json.dumps(output), at_s))
        return _MessageBuilder()
    if kind == "message" and item.get("role") != "assistant":
        _flush(messages, reply)
        text = _parts_text(item.get("content"))
        if item.get("role") == "user" and text.strip() and not text.lstrip().startswith(_CODEX_NOTICES):
            messages.append(RecordedMessage({"role": "user", "content": text}, at_s))
        return _MessageBuilder()
    reply.at_s = at_s
    if kind == "message":
        reply.texts.append(_parts_text(item.get("content")))
    elif kind == "reasoning":
        thought = _parts_text(item.get("summary"))
        reply.thinking += [thought] if thought else []
    elif kind == "function_call":
        reply.add_call(item.get("call_id"), item.get("name"), item.get("arguments"))
    elif kind == "custom_tool_call":
        reply.add_call(item.get("call_id"), item.get("name"), {"input": item.get("input")})
    else:
        reply.add_call(item.get("call_id") or item.get("id"), "local_shell", item.get("action"))
    return reply


def _inner(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, Mapping) else value


def _keys(value: object) -> Iterable[object]:
    return value if isinstance(value, Mapping) else ()


def _set_codex_usage(messages: list[RecordedMessage], reply: _MessageBuilder, event: Mapping[str, Any]) -> None:
    """Set the usage of the newest reply from the event that Codex logs after a call's items."""
    info = event.get("info")
    last = info.get("last_token_usage") if event.get("type") == "token_count" and isinstance(info, Mapping) else None
    if not isinstance(last, Mapping):
        return
    cached, written = _count(last, "cached_input_tokens"), _count(last, "cache_write_input_tokens")
    fresh = max(0, _count(last, "input_tokens") - cached - written)
    usage = RecordedUsage(fresh, _count(last, "output_tokens"), cached, written)
    if not reply.is_empty:
        reply.usage = usage
        return
    for i in range(len(messages) - 1, -1, -1):
        if messages[i].body["role"] == "assistant":
            if messages[i].usage is None:
                messages[i] = RecordedMessage(messages[i].body, messages[i].at_s, usage)
            return


def _read_pi(records: list[Record], name: str) -> RecordedSession:
    """Build a session from a log of pi: a tree of entries, of which the branch of the last one counts."""
    messages: list[RecordedMessage] = []
    model = ""
    for entry in _branch(records[1:]):
        at_s, inner = _seconds(entry.get("timestamp")), entry.get("message")
        if entry.get("type") == "compaction":
            summary = {"role": "user", "content": _PI_SUMMARY + str(entry.get("summary") or "")}
            messages.append(RecordedMessage(summary, at_s, is_summary=True))
        elif entry.get("type") == "message" and isinstance(inner, Mapping):
            model = str(inner.get("model") or model)
            messages += _pi_message(inner, at_s)
    return RecordedSession(str(records[0].get("id") or name), tuple(messages), "pi", model)


def _branch(entries: Sequence[Record]) -> list[Record]:
    """Return the entries from the first to the last along their parents; all of them in a log without parents."""
    by_id = {str(e["id"]): e for e in entries if e.get("id")}
    if not by_id or not any("parentId" in e for e in entries):
        return list(entries)
    path: list[Record] = []
    visited: set[str] = set()
    entry: Record | None = next((e for e in reversed(entries) if e.get("id")), None)
    while entry is not None and str(entry["id"]) not in visited:
        visited.add(str(entry["id"]))
        path.append(entry)
        entry = by_id.get(str(entry.get("parentId")))
    return path[::-1]


def _pi_message(inner: Mapping[str, Any], at_s: float | None) -> Iterator[RecordedMessage]:
    role = inner.get("role")
    if role == "assistant":
        raw = inner.get("usage")
        usage = None
        if isinstance(raw, Mapping):
            usage = RecordedUsage(*(_count(raw, key) for key in ("input", "output", "cacheRead", "cacheWrite")))
        reply = _MessageBuilder(at_s=at_s, usage=usage)
        _add_blocks(reply, inner.get("content"))
        if not reply.is_empty:
            yield reply.build()
    elif role == "toolResult":
        yield _result(inner.get("toolCallId"), _parts_text(inner.get("content")), at_s)
    elif role == "bashExecution":
        text = f"$ {inner.get('command', '')}\n{inner.get('output', '')}"
        yield RecordedMessage({"role": "user", "content": text}, at_s)
    elif role == "user" and (text := _parts_text(inner.get("content"))).strip():
        yield RecordedMessage({"role": "user", "content": text}, at_s)


_READERS: Mapping[Format, Callable[[list[Record], str], RecordedSession]] = {
    "perdure": _read_perdure,
    "openai": _read_message_lines,
    "claude-code": _read_claude_code,
    "codex": _read_codex,
    "pi": _read_pi,
}


def plain_messages(session: RecordedSession) -> list[Record]:
    """Return the session as OpenAI-style messages for a store, without summaries and reasoning."""
    rows: list[Record] = [{"role": "system", "content": session.system_prompt}] if session.system_prompt else []
    for message in session.messages:
        if message.is_summary or message.body.get("role") in ("system", "developer"):
            continue
        rows.append({k: v for k, v in message.body.items() if k in ("role", "content", "tool_calls", "tool_call_id")})
    return rows
