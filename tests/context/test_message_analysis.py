"""What was said, apart from what programs put around it; read in a time that grows with its length and no faster."""

from __future__ import annotations

import time

import pytest

from perdure.context.record.statements import read_statement
from perdure.context.text import sentences
from perdure.context.user_text.intent import typed_text
from perdure.core.messages import user


@pytest.mark.spec("E12")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<note>nobody said it</note>fix it", "fix it"),
        ("fix <b>this</b> and <i>that</i> now", "fix   and   now"),
        ("<p>one<p>two</p>three</p>", "three"),
        ("one<br>two <br/> three", "one two   three"),
        ("see <a href='x'>here</a>", "see  here"),
        ("</b> before <b> and never closed", "before   and never closed"),
        ("3 < 4 and <unfinished", "3 < 4 and <unfinished"),
    ],
)
def test_markup_is_not_said_by_anyone(text: str, said: str) -> None:
    assert typed_text(user(text)) == said


@pytest.mark.spec("E12")
def test_sentences_end_at_marks_and_lines_but_not_inside_a_word() -> None:
    text = "Use v1.2.3 now! Why?\n- see a.py\n好的。再见\n```\ncode. here\n```Done."
    assert sentences(text) == ["Use v1.2.3 now!", "Why?", "- see a.py", "好的。", "再见", "Done."]


@pytest.mark.spec("E12")
@pytest.mark.parametrize(
    "text",
    ["<br> line\n" * 30_000, "<a" * 150_000, "<a" * 150_000 + ">", "x 吗" + " " * 300_000 + "x", "吗 " * 100_000 + "x"],
    ids=["never closed", "never ended", "ended once", "blanks", "questions"],
)
def test_a_long_page_takes_no_longer_than_its_length(text: str) -> None:
    started = time.process_time()
    read_statement(user(text))
    # It takes a tenth of a second; where each tag or blank is looked at from every one before it, minutes.
    assert time.process_time() - started < 5
