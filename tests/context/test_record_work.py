"""What is computed of a long history, and when: texts that are shown, and equal messages once."""

from __future__ import annotations

import json
from unittest.mock import patch

import pytest

from perdure.context.history import CompactionHistory
from perdure.context.record import calls
from perdure.context.record.record import call_lines, prepare
from perdure.core.messages import Entry, Message, ToolCall, tool_result


def _edit(seq: int) -> list[Entry]:
    arguments = {"file_path": f"src/part_{seq}.py", "old_string": "LIMIT = 3", "new_string": "LIMIT = 5"}
    call = ToolCall(f"c{seq}", "edit", json.dumps(arguments))
    asked = Message("assistant", "", tool_calls=(call,), kind="assistant")
    return [Entry(seq, asked), Entry(seq + 1, tool_result(call.id, "The file was updated.", "edit"))]


@pytest.mark.spec("E1")
def test_the_text_of_an_edit_is_composed_when_it_is_first_read() -> None:
    with patch.object(calls, "_compose_edit", wraps=calls._compose_edit) as composed:
        line = call_lines(_edit(1))[1, "c1"]
        assert (line.kind, line.target, line.facts.changed_files) == ("edit", "src/part_1.py", ("src/part_1.py",))
        assert composed.call_count == 0
        assert "LIMIT = 5" in line.detail
        assert "LIMIT = 5" in line.line
        assert composed.call_count == 1


def test_messages_that_are_observed_leave_nothing_to_compose() -> None:
    entries = _edit(1)
    with patch.object(calls, "_compose_edit", wraps=calls._compose_edit) as composed:
        prepare(entries)
        assert composed.call_count == 1
        assert "LIMIT = 5" in call_lines(entries)[1, "c1"].detail
        assert composed.call_count == 1


def test_equal_words_of_a_plain_list_share_what_is_computed_of_them() -> None:
    said = {"role": "user", "content": "Please run the tests again."}
    replied = {"role": "assistant", "content": "They pass."}
    entries = CompactionHistory.read([said, replied, said, {"role": "assistant", "content": "They fail."}]).entries
    entries[0].memo("words", lambda m: m.text)
    assert [e.memoized("words") for e in entries] == [said["content"], None, said["content"], None]
    assert [e.seq for e in entries] == [-4, -3, -2, -1]
