"""Streamed Markdown: finished blocks are given out once, whole, and nothing is lost between them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.formatted_text import StyleAndTextTuples

from perdure.cli.chat import drawing
from perdure.cli.chat.drawing import PaintedRows
from perdure.cli.chat.markdown import Blocks
from perdure.cli.chat.markdown_render import render_markdown
from perdure.cli.chat.transcript import ChatTranscript
from perdure.cli.style import Style, fit_lines, safe
from perdure.core.events import TextDelta

LINES = st.sampled_from(
    ["text", "", "# head", "- item", "1. one", "  more", "```py", "```", "~~~", "x = 1", "    ```", "| a | b |", "> q"]
)


def blocks_of(*pieces: str) -> list[str]:
    blocks = Blocks()
    done = [b for piece in pieces for b in blocks.feed(piece)]
    return [b.markdown for b in (*done, *blocks.end())]


@settings(max_examples=200, deadline=None)
@given(st.lists(LINES, max_size=80), st.integers(1, 40))
def test_the_sources_of_all_blocks_are_the_text(lines: list[str], size: int) -> None:
    text = "\n".join(lines)
    blocks = Blocks()
    done = [b for i in range(0, len(text), size) for b in blocks.feed(text[i : i + size])]
    done += blocks.end()
    assert "".join(b.source for b in done) == text
    assert blocks.live == ""


def test_a_paragraph_is_finished_by_the_next_one() -> None:
    blocks = Blocks()
    assert blocks.feed("one\n\n") == []
    (first,) = blocks.feed("two\n")
    assert first.source == "one\n\n"
    assert blocks.live == "two\n"


def test_a_fence_is_one_block_even_with_blank_lines_in_it() -> None:
    assert blocks_of("```py\na\n\n# no heading\n```\nafter") == ["```py\na\n\n# no heading\n```\n", "after"]


def test_an_open_fence_is_closed_for_showing() -> None:
    blocks = Blocks()
    blocks.feed("```py\nx = 1\ny =")
    assert blocks.live == "```py\nx = 1\ny =\n```\n"


def test_a_long_fence_is_given_out_in_pieces_that_each_stand_alone() -> None:
    pieces = blocks_of("```py\n" + "".join(f"x = {i}\n" for i in range(100)) + "```\n")
    assert len(pieces) > 2
    assert all(p.startswith("```py\n") and p.endswith("```\n") for p in pieces)
    assert [line for p in pieces for line in p.splitlines() if "x" in line] == [f"x = {i}" for i in range(100)]


def test_a_list_item_keeps_its_indented_rest() -> None:
    assert blocks_of("- one\n\n  more of one\n- two\n\nafter") == ["- one\n\n  more of one\n- two\n\n", "after"]


def test_painted_markdown_fits_its_width_and_obeys_no_colour() -> None:
    text = "# Head\n\nSome **bold** words that go on and on and on.\n\n```py\nx = 1\n```\n"
    plain = render_markdown(text, width=30, is_color=False)
    assert "\x1b[3" not in plain
    assert max(map(len, plain.splitlines())) <= 60  # with the escapes of bold and underline
    assert "\x1b[" in render_markdown(text, width=30, is_color=True)


def test_a_model_cannot_steer_the_terminal() -> None:
    assert safe("a\x1b[2Jb\x07c\x9bd\te\n") == "a[2Jbcd\te\n"
    assert "\x1b]" not in render_markdown("\x1b]0;title\x07hello", width=40, is_color=False)


def test_a_command_cannot_read_as_another_one() -> None:
    assert safe("ls \u202egnp.x\u202c") == "ls gnp.x"


def test_long_lines_go_on_under_where_their_text_began() -> None:
    assert list(fit_lines(["  found  some words here", "short"], 20)) == ["  found  some words", "      here", "short"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("about **r", "about **r**"),
        ("about **rivers*", "about **rivers**"),
        ("about **", "about"),
        ("about **rivers** and `co", "about **rivers** and `co`"),
        ("about **rivers** and", "about **rivers** and"),
        ("2**3 is 8", "2**3 is 8"),
        ("a list\n- **one", "a list\n- **one**"),
    ],
)
def test_marks_that_a_stopped_text_leaves_open_are_closed(text: str, shown: str) -> None:
    blocks = Blocks()
    assert blocks.feed(text) == []
    assert blocks.live == shown
    assert "".join(block.markdown for block in blocks.end(is_cut=True)) == shown
    whole = Blocks()
    whole.feed(text)
    assert "".join(block.markdown for block in whole.end()) == text, "a text that ended by itself is as it was written"


def test_the_rows_of_a_long_paragraph_stay_where_they_are_as_it_grows() -> None:
    transcript = ChatTranscript(lambda text: None, width=lambda: 60, ink=Style(is_color=False))
    transcript.show(TextDelta(" ".join(f"word{n}" for n in range(1_000))))
    moved = 0
    for n in range(60):
        before = transcript.live(width=60, rows=400).split("\n")
        transcript.show(TextDelta(f" more{n} words{n}"))
        after = transcript.live(width=60, rows=400).split("\n")
        moved += before[:-1] != after[: len(before) - 1]
    assert moved <= 1, "the whole text was wrapped anew with every word"


def test_only_rows_that_are_new_are_parsed_for_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    plain = drawing._join_styles

    def counting(row: str) -> StyleAndTextTuples:
        parsed.append(row)
        return plain(row)

    monkeypatch.setattr(drawing, "_join_styles", counting)
    rows = [f"\x1b[1mbold {n}\x1b[0m and plain {n}" for n in range(20)]
    control = PaintedRows(lambda: "\n".join(rows))
    for _ in range(5):  # a drawing asks several times
        content = control.create_content(80, None)
    assert (content.line_count, len(parsed)) == (20, 20)
    assert content.get_line(3) == [("bold", "bold 3"), ("", " and plain 3")]
    rows.append("one more")
    assert control.preferred_height(80, 100, False, None) == 21
    assert parsed[20:] == ["one more"]
