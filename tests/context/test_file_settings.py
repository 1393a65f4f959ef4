"""The index lists the values of changed files of settings, and never one that may be another."""

from __future__ import annotations

import json

import pytest

from perdure.context.record.file_settings import FileSettings
from perdure.context.record.record import call_lines
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result

PATH = "conf/app.toml"
CONTENT = '[server]\nport = 8081\nname = "tides"\n\n[cache]\nttl = 40\nsize = 9\n\n[disk]\nsize = 12\n'


def _call(name: str, result: str, **arguments: object) -> list[Message]:
    call_id = f"{name}{abs(hash(json.dumps(arguments)))}"
    return [assistant("", (ToolCall(call_id, name, json.dumps(arguments)),)), tool_result(call_id, result)]


def _read(content: str = CONTENT, **arguments: object) -> list[Message]:
    numbered = "\n".join(f"{n}\t{line}" for n, line in enumerate(content.splitlines(), 1))
    return _call("Read", numbered, file_path=PATH, **arguments)


def _edit(old: str, new: str) -> list[Message]:
    return _call("Edit", "ok", file_path=PATH, old_string=old, new_string=new)


def _draw(*messages: list[Message], shown: str = "") -> str:
    entries = [Entry(n, m) for n, m in enumerate(m for pair in messages for m in pair)]
    return FileSettings.read(entries, call_lines(entries)).draw(1_000, shown)


def test_a_file_that_was_read_and_changed_has_its_newest_values_but_no_name_with_two() -> None:
    assert _draw(_read(), _edit("ttl = 40", "ttl = 55")) == f'- Set in {PATH}: port = 8081, name = "tides", ttl = 55'


def test_a_file_that_was_only_read_and_what_is_shown_are_not_listed() -> None:
    assert _draw(_read()) == ""
    assert "port" not in _draw(_read(), _edit("ttl = 40", "ttl = 55"), shown="+ port = 8081")
    assert "port = 8081" in _draw(_read(), _edit("ttl = 40", "ttl = 55"), shown="port = 80")


@pytest.mark.parametrize(
    "change",
    [
        _edit("ttl = 40\n", ""),
        _edit("ttl", "lifetime"),
        _edit("size = 9", "size = 9\nttl = 41"),
        _call("bash", "", command=f"cat > {PATH} <<'E'\nttl = 90\nE"),
        _call("Edit", "String to replace not found in file.", file_path=PATH, old_string="a = 1", new_string="ttl = 3"),
    ],
)
def test_a_value_that_may_have_changed_is_left_out(change: list[Message]) -> None:
    drawn = _draw(_read(), _edit("port = 8081", "port = 8082"), change)
    assert "ttl = 3" not in drawn
    assert "ttl" not in drawn or "not found" in change[1].text


def test_a_file_that_was_seen_in_part_is_not_listed() -> None:
    assert _draw(_read("port = 8081", offset=2, limit=1), _edit("port = 8081", "port = 9")) == ""
    assert _draw(_edit("port = 8081", "port = 9")) == ""


def test_a_written_file_has_the_values_it_was_written_with() -> None:
    first = _call("Write", "ok", file_path=PATH, content=CONTENT)
    assert "port = 1" in _draw(first, _call("Write", "ok", file_path=PATH, content="port = 1\n"))
    assert "ttl" not in _draw(first, _call("Write", "ok", file_path=PATH, content="port = 1\n"))
    assert "token" not in _draw(_call("Write", "ok", file_path=PATH, content="token = sk-proj-4fK9ZqT7mW2xB8vLc3Rd5\n"))
    many = "".join(f"key_{n} = {n}\n" for n in range(100))
    assert len(_draw(_call("Write", "ok", file_path=PATH, content=many))) < 220
