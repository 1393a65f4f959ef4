"""What is computed of a long history, and when: texts that are shown, and equal messages once."""

from __future__ import annotations

import gc
import json
from unittest.mock import patch

import pytest

from perdure.context.compaction_input import CompactionHistory
from perdure.context.exact_values import FACTS_KEY, EntryFacts
from perdure.context.record.record import _NEWEST_ENTRIES, call_lines, prepare
from perdure.context.record.value_index import ValueUse
from perdure.context.redacted_entries import is_redacted
from perdure.context.task_state.reader import read_state
from perdure.context.tool_calls import describe as calls
from perdure.context.tool_calls.call_line import PendingCallLine
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
    assert [e.get_memo("words") for e in entries] == [said["content"], None, said["content"], None]
    assert [e.seq for e in entries] == [-4, -3, -2, -1]


# A token of the form that the issuer gives it, made up.
_TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3


def _old_edits(count: int, new: str = "LIMIT = 5", folder: str = "src") -> list[Entry]:
    """The edits of a long history, the first of them with another text."""
    arguments = {"file_path": f"{folder}/part.py", "old_string": "LIMIT = 3", "new_string": new}
    call = ToolCall("c0", "edit", json.dumps(arguments))
    first = Message("assistant", "", tool_calls=(call,), kind="assistant")
    entries = [Entry(0, first), Entry(1, tool_result("c0", "The file was updated.", "edit"))]
    return entries + [entry for n in range(1, count) for entry in _edit(2 * n)]


def test_an_old_edit_is_redacted_when_its_text_is_first_read() -> None:
    entries = _old_edits(_NEWEST_ENTRIES, new=f"TOKEN = '{_TOKEN}'")
    lines = call_lines(entries)
    assert not is_redacted(entries[0])
    assert is_redacted(entries[-2])
    line = lines[0, "c0"]
    assert (line.target, line.facts.changed_files) == ("src/part.py", ("src/part.py",))
    assert "TOKEN" in line.detail
    assert _TOKEN not in line.detail
    assert _TOKEN not in line.line


def test_the_entries_of_a_history_are_freed_with_it() -> None:
    entries = _old_edits(_NEWEST_ENTRIES, folder="freed")
    gc.disable()
    try:
        call_lines(entries)
        assert _lines_of("freed/part.py") == 1
        del entries
        assert _lines_of("freed/part.py") == 0, "an entry refers to itself by its line"
    finally:
        gc.enable()


def _lines_of(target: str) -> int:
    """The lines of calls in memory that have a target."""
    return sum(type(o) is PendingCallLine and o.target == target for o in gc.get_objects())


def test_a_secret_in_the_path_of_an_old_edit_is_redacted() -> None:
    line = call_lines(_old_edits(_NEWEST_ENTRIES, folder=_TOKEN))[0, "c0"]
    assert line.target.endswith("/part.py")
    assert _TOKEN not in line.target + line.facts.changed_files[0] + line.detail


def test_a_secret_in_the_output_of_an_old_command_is_redacted() -> None:
    call = ToolCall("c0", "bash", json.dumps({"command": "make deploy"}))
    entries = [
        Entry(0, Message("assistant", "", tool_calls=(call,), kind="assistant")),
        Entry(1, tool_result("c0", f"deployed with {_TOKEN}\nexit code 1: deploy failed", "bash")),
        *_old_edits(_NEWEST_ENTRIES)[2:],
    ]
    line = call_lines(entries)[0, "c0"]
    assert "deploy" in line.line
    assert _TOKEN not in line.line + line.detail + line.facts.error


def test_only_the_facts_that_count_are_extracted() -> None:
    listing = "\n".join(f"src/module_{n}/file_{n}.py" for n in range(200))
    entries = [Entry(n, tool_result(f"c{n}", f"{listing}\nsrc/seen_{n}.py", "ls")) for n in range(2_000)]
    use = ValueUse.read(list(map(EntryFacts, entries)))
    assert "src/seen_1999.py" in use.weights.chance
    assert entries[-1].get_memo(FACTS_KEY) is not None
    assert entries[0].get_memo(FACTS_KEY) is None
    assert sum(e.get_memo(FACTS_KEY) is not None for e in entries) < 100


def test_a_proposal_is_read_for_an_answer_that_may_take_it_up() -> None:
    reply = Message("assistant", "We could queue the jobs. Shall I do that?", kind="assistant")
    for answer, is_read in (("Yes, do that.", True), ("Now list the open tickets of the team.", False)):
        entries = [Entry(0, Message("user", "What now?")), Entry(1, reply), Entry(2, Message("user", answer))]
        read_state(entries, call_lines(entries))
        assert (entries[1].get_memo("proposal") is not None) == is_read
