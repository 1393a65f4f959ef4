"""Work that was taken back is one line that says so: by another edit, by git, or by the user's undo."""

from __future__ import annotations

import json
import time

from perdure.context.edit_blocks import find_undone_replies
from perdure.context.record.record import draw_record
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user

_OLD = "level = gauge.read()\nshow(level)\n"
_NEW = "level = gauge.read(retries=3)\nif level is None:\n    level = forecast.level_at(now)\nshow(level)\n"


class Session:
    def __init__(self) -> None:
        self.messages: list[Message] = [user("Make the level robust.")]

    def call(self, name: str, result: str, **arguments: str) -> None:
        number = f"c{len(self.messages)}"
        call = ToolCall(number, name, json.dumps(arguments))
        self.messages += [assistant("", (call,)), tool_result(number, result)]

    def edit(self, old: str, new: str, path: str = "/w/tides.py") -> None:
        self.call("Edit", "The file has been updated.", file_path=path, old_string=old, new_string=new)

    def record(self) -> str:
        return draw_record([Entry(n, m) for n, m in enumerate(self.messages)], budget=6_000)


class TestEdits:
    def test_an_edit_that_a_later_one_restores_is_one_line(self) -> None:
        session = Session()
        session.edit(_OLD, _NEW)
        session.edit(_NEW, _OLD)
        lines = session.record().split("\n")
        assert sum("(later undone)" in line for line in lines) == 1
        at = next(n for n, line in enumerate(lines) if "(later undone)" in line)
        assert lines[at + 1].startswith("→ edit")

    def test_an_edit_of_other_lines_is_told_in_full(self) -> None:
        session = Session()
        session.edit(_OLD, _NEW)
        session.edit("low = spring_tide(day)\n", "low = neap_tide(day)\n")
        assert "later" not in session.record()
        assert "forecast.level_at(now)" in session.record()

    def test_an_edit_of_the_same_text_in_another_file_takes_nothing_back(self) -> None:
        session = Session()
        session.edit(_OLD, _NEW)
        session.edit(_NEW, _OLD, "/w/other.py")
        assert "later" not in session.record()

    def test_a_line_that_was_replaced_again_is_replaced(self) -> None:
        session = Session()
        session.edit("import os\n", "import os\nfrom harbour.config import settings\n")
        session.edit("from harbour.config import settings\n", "from harbour.format.config import settings\n")
        assert "(later replaced)" in session.record()

    def test_of_two_equal_edits_one_is_taken_back(self) -> None:
        session = Session()
        session.edit(_OLD, _NEW)
        session.edit(_OLD, _NEW)
        session.edit(_NEW, _OLD)
        assert session.record().count("(later undone)") == 1


class TestGit:
    def test_a_file_that_git_restores_takes_back_its_edits(self) -> None:
        session = Session()
        session.edit(_OLD, _NEW)
        session.edit("a_long_name = 1\n", "a_long_name = 2\n", "/w/other.py")
        session.call("bash", "", command="cd /w && git checkout -- tides.py")
        record = session.record()
        assert record.count("(later undone)") == 1
        assert "a_long_name = 2 (later" not in record

    def test_a_reset_takes_back_what_was_not_committed(self) -> None:
        session = Session()
        session.edit("a_long_name = 1\n", "a_long_name = 2\n", "/w/other.py")
        session.call("bash", "[main 1a2b3c4] Raise it\n 1 file changed", command="git commit -am 'Raise it'")
        session.edit(_OLD, _NEW)
        session.call("bash", "HEAD is now at 1a2b3c4 Raise it", command="git reset --hard")
        record = session.record()
        assert record.count("(later undone)") == 1
        assert "a_long_name = 2 (later" not in record

    def test_a_change_of_the_branch_or_of_the_index_takes_nothing_back(self) -> None:
        session = Session()
        session.edit(_OLD, _NEW)
        session.call("bash", "Switched to branch 'main'", command="git checkout main")
        session.call("bash", "", command="git restore --staged tides.py")
        assert "later" not in session.record()


def block(number: int, *, end: str = ">>>>>>> REPLACE") -> str:
    return (
        f"The gauge number {number} needs a retry.\n\ntides.py\n```python\n<<<<<<< SEARCH\nlevel_{number} = read()\n"
        f"=======\nlevel_{number} = read(retries={number})\n{end}\n```\nThe retry of gauge {number} is short.\n"
    )


class TestUndo:
    def test_a_reply_that_the_user_undid_is_one_line(self) -> None:
        messages = [user("Add retries."), assistant(block(1)), user("/undo"), user("Now the other gauge.")]
        record = draw_record([Entry(n, m) for n, m in enumerate(messages)], budget=6_000)
        assert "ASSISTANT [1]: (later undone) " in record
        assert "read(retries=1)" not in record

    def test_half_of_many_undos_are_certain(self) -> None:
        messages = [user("Add retries."), *(assistant(block(n)) for n in range(6)), *(user("/undo") for _ in range(4))]
        assert find_undone_replies([Entry(n, m) for n, m in enumerate(messages)]) == {5, 6}

    def test_a_reply_that_was_not_applied_was_not_undone(self) -> None:
        messages = [user("Add retries."), assistant(block(1)), assistant(block(2, end="")), user("/undo")]
        assert find_undone_replies([Entry(n, m) for n, m in enumerate(messages)]) == {1}


def test_many_edits_of_one_file_are_compared_in_linear_time() -> None:
    def seconds(count: int) -> float:
        session = Session()
        for n in range(count):
            session.edit(f"level_of_gauge_{n} = 1\n", f"level_of_gauge_{n} = 2\n")
        start = time.process_time()
        session.record()
        return time.process_time() - start

    seconds(50)
    assert seconds(1_200) < 12 * seconds(300) + 0.5
