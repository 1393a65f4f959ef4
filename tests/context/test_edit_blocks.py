"""Replies with SEARCH/REPLACE blocks: told by what they change, and not taken for done where a block is not closed."""

from __future__ import annotations

import time

import pytest

from perdure.context.edit_blocks import fold_edit_blocks, has_broken_block
from perdure.context.record.record import call_lines, draw_record
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.core.messages import Entry, Message, assistant, user

SAME = "".join(f"    step_{n}()\n" for n in range(30))
EDIT = f"<<<<<<< SEARCH\n{SAME}    level = 1\n=======\n{SAME}    level = 2\n>>>>>>> REPLACE"
REPLY = f"I raise the level:\n\nlib/tides.py\n```python\n{EDIT}\n```\n\nThat is all."
BROKEN = REPLY.replace(">>>>>>> REPLACE", "=======")
ASKED = "Raise the level of the tides to 2."


def _entries(*messages: Message) -> list[Entry]:
    return [Entry(n, m) for n, m in enumerate(messages)]


def _sections(*messages: Message) -> dict[str, str]:
    entries = _entries(*messages)
    return write_sections(read_state(entries, call_lines(entries)))


@pytest.mark.spec("E1b")
def test_a_block_is_told_by_the_lines_that_change_below_its_file() -> None:
    record = draw_record(_entries(user(ASKED), assistant(REPLY), user("Thanks")), budget=4_000)
    assert "lib/tides.py:" in record
    assert "− level = 1" in record
    assert "+ level = 2" in record
    assert "step_3()" not in record
    assert "SEARCH" not in record


@pytest.mark.spec("E2")
@pytest.mark.parametrize("reply", [BROKEN, BROKEN.partition("=======")[0], REPLY + BROKEN])
def test_a_request_whose_edit_cannot_have_been_applied_is_open(reply: str) -> None:
    task = _sections(user(ASKED), assistant(reply))["Active Task"]
    assert f"> {ASKED}" in task
    assert not task.startswith("None")
    assert "- Not applied: an edit in the last reply" in task
    done = _sections(user(ASKED), assistant(reply), user("Again, please."), assistant(REPLY))["Active Task"]
    assert done.startswith("None")
    assert "Not applied" not in done


def test_a_complete_block_is_applied() -> None:
    assert not has_broken_block(REPLY)
    assert not has_broken_block(f"{REPLY}\n\n{REPLY}")
    assert not has_broken_block("The marks <<<<<<< SEARCH and >>>>>>> REPLACE frame an edit.")
    assert has_broken_block(BROKEN)


@pytest.mark.parametrize(
    "block",
    [
        # A heading of reStructuredText, and the marks of a merge conflict.
        "<<<<<<< SEARCH\nTides\n=====\n\nlevel 1\n=======\nTides\n=====\n\nlevel 2\n>>>>>>> REPLACE",
        "<<<<<<< SEARCH\n<<<<<<< HEAD\nlevel 1\n=======\nlevel 2\n>>>>>>> main\n=======\nlevel 2\n>>>>>>> REPLACE",
        "<<<<<<< SEARCH\r\nlevel 1\r\n=======\r\nlevel 2\r\n>>>>>>> REPLACE",
        "<<<<<<< SEARCH\n:start_line:3\n-------\nlevel 1\n=======\nlevel 2\n>>>>>>> REPLACE",
    ],
)
def test_a_block_with_marks_in_its_text_is_complete(block: str) -> None:
    assert not has_broken_block(block)
    folded = fold_edit_blocks(block)
    assert "level 1" in folded
    assert "+ level 2" in folded
    assert "not applied" not in folded
    assert "_line" not in folded


def test_an_explanation_of_the_marks_is_no_broken_edit() -> None:
    text = "A block begins with:\n\n```\n<<<<<<< SEARCH\n```\n\nand ends with:\n\n```\n>>>>>>> REPLACE\n```\n"
    assert not has_broken_block(text)
    assert fold_edit_blocks(text).strip() == text.strip()
    assert not has_broken_block("<<<<<<< SEARCH is the line that begins a block.")


def test_the_text_behind_a_broken_block_is_not_taken_for_code() -> None:
    folded = fold_edit_blocks(REPLY.replace("\n>>>>>>> REPLACE", ""))
    assert "+ level = 2" in folded
    assert folded.strip().endswith("```\n\nThat is all.")
    assert "+ That is all." not in folded


def test_text_without_blocks_stays_as_it_is() -> None:
    for text in ("plain", "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> main", "a\n=======\nb"):
        assert fold_edit_blocks(text) == text


def test_folding_is_linear_in_the_length() -> None:
    def seconds(times: int) -> float:
        text = "<<<<<<< SEARCH\nx\n" * times
        begin = time.perf_counter()
        fold_edit_blocks(text)
        return time.perf_counter() - begin

    seconds(100)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.002)
