"""Files that the user restored with `/undo files` are told as taken back, in the sections and in the record."""

from __future__ import annotations

import json

import pytest

from perdure.context.record.record import RecordSource, call_lines
from perdure.context.task_state.overview import describe_state
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.context.task_state.state import TaskState
from perdure.core.messages import (
    SYSTEM_NOTE,
    Entry,
    FilesTakenBack,
    Message,
    TextPart,
    ToolCall,
    assistant,
    files_taken_back,
    tool_result,
    user,
)
from perdure.core.rules import merge

ASKED = "Please set the tax of the shop to 20 percent."
BACK = "Taken back by the user with /undo files"


def _call(number: int, name: str, arguments: dict[str, object], result: str) -> list[Message]:
    call = ToolCall(f"c{number}", name, json.dumps(arguments))
    return [assistant(None, (call,)), tool_result(f"c{number}", result)]


def _edit(number: int, path: str) -> list[Message]:
    arguments = {"path": path, "old_string": "tax = 19", "new_string": f"tax = {number}"}
    return _call(number, "edit_file", arguments, "Replaced 1 occurrence.")


def _run(number: int, command: str, output: str) -> list[Message]:
    return _call(number, "terminal", {"command": command}, output)


def _restore(before_seq: int, *paths: str) -> Message:
    return Message("user", SYSTEM_NOTE + FilesTakenBack(before_seq, paths).note(), kind="note")


def _state(*messages: Message) -> TaskState:
    entries = [Entry(at, m) for at, m in enumerate(messages)]
    return read_state(entries, call_lines(entries))


def _sections(*messages: Message) -> dict[str, str]:
    return write_sections(_state(*messages))


def _record(*messages: Message) -> str:
    entries = [Entry(at, m) for at, m in enumerate(messages)]
    return RecordSource(entries).draw(4_000)


DONE = [user(ASKED), *_edit(20, "shop.py"), assistant("The tax in shop.py is 20 percent now.")]
NEXT = [user("What is left to do in the shop?"), assistant("Nothing is left.")]


@pytest.mark.parametrize(
    "note",
    [
        FilesTakenBack(3, ("/srv/a; b.py", "/srv/c.py"), ("/srv/new.py",)),
        FilesTakenBack(12, deleted=("/srv/one.py",), more=1_200),
        FilesTakenBack(1, ("/srv/odd. name\n.py",)),
    ],
)
def test_the_note_is_read_as_it_was_written(note: FilesTakenBack) -> None:
    message = Message("user", SYSTEM_NOTE + note.note(), kind="note")
    assert files_taken_back(message) == note
    assert files_taken_back(merge(message, user("Go on."))) == note
    assert files_taken_back(Message.from_dict(message.to_dict())) == note


def test_words_like_the_note_are_none() -> None:
    text = FilesTakenBack(1, ("/srv/a.py",)).note()
    assert files_taken_back(user(text)) is None
    assert files_taken_back(assistant(SYSTEM_NOTE + text)) is None
    assert files_taken_back(Message("user", (TextPart("Why this?"), TextPart(text)))) is None


@pytest.mark.parametrize("path", ["/srv/shop/shop.py", "/tmp/work/shop.py"])
def test_restored_files_are_no_longer_changed(path: str) -> None:
    before, after = _sections(*DONE, *NEXT), _sections(*DONE, _restore(0, path), *NEXT)
    assert "Changed" in before["Active State"]
    assert after["Completed Actions"] == f"1. “{ASKED}” — t{BACK[1:]}: shop.py (m:0,3)"
    assert "Changed" not in after["Active State"]
    assert f"- {BACK}: shop.py (m:4)" in after["Active State"].splitlines()
    assert after["Relevant Files"] == f"- {BACK}: shop.py"
    rows = dict(describe_state(_state(*DONE, _restore(0, path), *NEXT)))
    assert "files changed" not in rows
    assert rows["taken back"] == "1"


def test_a_folder_that_was_deleted_is_back_with_its_files() -> None:
    deleted = [user("Delete old_data."), *_run(1, "rm -rf old_data", ""), assistant("Deleted.")]
    assert "Deleted: old_data" in _sections(*deleted, *NEXT)["Relevant Files"]
    restored = Message(
        "user",
        SYSTEM_NOTE + FilesTakenBack(0, ("/srv/shop/old_data/a.csv", "/srv/shop/old_data/b.csv")).note(),
        kind="note",
    )
    text = "\n".join(_sections(*deleted, restored, *NEXT).values())
    assert "Deleted:" not in text
    assert f"{BACK}: " in text
    assert dict(describe_state(_state(*deleted, restored, *NEXT)))["taken back"] == "3"


def test_a_note_within_the_next_message_counts_as_well() -> None:
    merged = merge(_restore(0, "/srv/shop.py"), user("What is left to do in the shop?"))
    messages = [*DONE, merged, assistant("Nothing is left.")]
    assert f"- {BACK}: shop.py" in _sections(*messages)["Active State"]
    record = _record(*messages)
    assert "The user took back: /srv/shop.py" in record
    assert "What is left to do" in record


def test_what_was_changed_before_the_restored_state_and_after_it_stays_changed() -> None:
    again = [user("Now the tax to 21."), *_edit(21, "shop.py"), *_edit(22, "other.py"), assistant("Set to 21.")]
    sections = _sections(*DONE, *again, _restore(4, "/srv/shop.py"), *NEXT)
    assert "shop.py, other.py" in sections["Active State"] or "other.py, shop.py" in sections["Active State"]
    assert f"- {BACK}: shop.py (later changes)" in sections["Active State"]
    done = sections["Completed Actions"].splitlines()
    assert "changed shop.py" in done[0]
    assert BACK[1:] not in done[0]
    assert f"— t{BACK[1:]}: shop.py (changed other.py)" in done[1]

    changed_again = _sections(*DONE, _restore(0, "/srv/shop.py"), *again)
    assert "shop.py" in changed_again["Active State"].partition("Changed, no commit seen: ")[2]
    assert BACK not in changed_again["Active State"]
    assert BACK not in changed_again["Relevant Files"]
    assert BACK[1:] in changed_again["Completed Actions"].splitlines()[0]

    twice = _sections(*DONE, *again, _restore(4, "/srv/shop.py"), _restore(0, "/srv/shop.py", "/srv/other.py"), *NEXT)
    assert "Changed" not in twice["Active State"]


def test_tests_that_ran_with_the_changes_are_outdated_and_those_before_are_not() -> None:
    green = _run(9, "pytest -q", "4 passed in 0.1s")
    restored = _restore(2 + 1, "/srv/shop.py")
    before = [user("Run the tests."), *green, assistant("Green.")][:3]
    tested = _sections(user("Run them."), *_edit(20, "shop.py"), *green, assistant("Green."), _restore(0, "/s/shop.py"))
    assert "not run since shop.py changed" in tested["Active State"]
    untouched = _sections(*before, user(ASKED), *_edit(20, "shop.py"), assistant("Done."), restored)
    assert "4 passed" in untouched["Active State"]
    assert "not run since" not in untouched["Active State"]


def test_an_open_request_tells_what_was_taken_back_of_it() -> None:
    messages = [user(ASKED), *_edit(20, "/srv/shop/shop.py"), *_edit(21, "/srv/shop/b.py")]
    task = _sections(*messages, _restore(0, "/srv/shop/shop.py"))["Active Task"]
    assert "changed /srv/shop/b.py" in task or "changed b.py" in task
    assert f"t{BACK[1:]}: " in task


def test_files_that_a_note_does_not_name_are_taken_back_with_the_others() -> None:
    note = Message("user", SYSTEM_NOTE + FilesTakenBack(0, ("/srv/shop.py",), more=1).note(), kind="note")
    messages = [user(ASKED), *_edit(20, "shop.py"), *_edit(21, "b.py"), assistant("Done."), note]
    assert {f.path: f.status for f in _state(*messages).files} == {"shop.py": "taken back", "b.py": "taken back"}


def test_files_that_were_moved_or_deleted_come_back() -> None:
    moved = _run(1, "git mv a.py b.py && git rm -q c.py", "")
    state = _state(user(ASKED), *moved, assistant("Moved."), _restore(0, "/srv/a.py", "/srv/c.py"))
    assert {f.path: f.status for f in state.files} == {"a.py": "taken back", "b.py": "changed", "c.py": "taken back"}


def test_steps_on_restored_files_are_not_listed_as_done() -> None:
    names = [f"m{n}.py" for n in range(5)]
    steps = [m for n, name in enumerate(names) for m in _call(n, "format_file", {"path": name}, f"Formatted {name}.")]
    messages = [user("Format every module."), *steps, assistant("Formatted.")]
    assert "×5 → Formatted ….: m0.py, m1.py" in _sections(*messages)["Completed Actions"]
    restored = _restore(0, *(f"/srv/{name}" for name in names[:2]))
    assert "×3 → Formatted ….: m2.py, m3.py, m4.py" in _sections(*messages, restored)["Completed Actions"]


def test_the_record_tells_what_was_taken_back() -> None:
    assert "NOTE [4]: The user took back: /srv/shop.py (/undo files, to before m:0)" in _record(
        *DONE, _restore(0, "/srv/shop.py"), *NEXT
    )
    other = Message("user", f"{SYSTEM_NOTE}The user stopped your previous reply.", kind="note")
    assert "NOTE" not in _record(*DONE, other, *NEXT)
