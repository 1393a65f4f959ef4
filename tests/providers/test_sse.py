"""Server-sent events, however the network cuts them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.providers.chat_completions import ThinkSplitter
from perdure.providers.http import SseReader
from perdure.providers.types import SseEvent

LINE_ENDS = ("\n", "\r\n", "\r")


def read(*chunks: bytes) -> list[SseEvent]:
    reader = SseReader()
    return [e for c in chunks for e in reader.feed(c)] + reader.finish()


@pytest.mark.parametrize("end", LINE_ENDS)
def test_every_line_end_is_understood(end: str) -> None:
    text = f"event: a{end}data: one{end}{end}data: two{end}{end}"
    assert read(text.encode()) == [SseEvent("a", "one"), SseEvent("", "two")]


def test_data_lines_are_joined_and_everything_else_is_passed_over() -> None:
    text = b": ping\n\nid: 7\nretry: 10\ndata: one\ndata:two\ndata\ndata:  three\n\n"
    assert read(text) == [SseEvent("", "one\ntwo\n\n three")]


def test_an_event_without_data_is_no_event_and_its_name_does_not_linger() -> None:
    assert read(b"event: lonely\n\ndata: x\n\n") == [SseEvent("", "x")]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert read(b"\xef\xbb\xbfdata: x\n\n") == [SseEvent("", "x")]


def test_a_last_event_without_its_blank_line_still_counts() -> None:
    assert read(b"data: [DO", b"NE]") == [SseEvent("", "[DONE]")]


def test_a_lone_cr_ends_its_event_at_once() -> None:
    assert SseReader().feed(b"data: x\r\r") == [SseEvent("", "x")]


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    assert read(b"data: \xff\xfe!\n\n") == [SseEvent("", "\ufffd\ufffd!")]


@given(
    st.lists(st.tuples(st.sampled_from(["", "delta"]), st.text(st.characters(exclude_characters="\r\n"))), max_size=8),
    st.sampled_from(LINE_ENDS),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_chunk_boundaries_never_matter(rows: list[tuple[str, str]], end: str, sizes: list[int]) -> None:
    frames = [(f"event: {name}{end}" if name else "") + f"data: {text}{end}{end}" for name, text in rows]
    raw = "".join(frames).encode("utf-8", "surrogatepass")
    chunks, at, turn = [], 0, 0
    while at < len(raw):
        chunks.append(raw[at : at + sizes[turn % len(sizes)]])
        at += sizes[turn % len(sizes)]
        turn += 1
    assert read(*chunks) == read(raw)
    assert [e.name for e in read(raw)] == [name for name, _ in rows]


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_noise_never_raises_and_never_depends_on_its_chunks(chunks: list[bytes]) -> None:
    assert read(*chunks) == read(b"".join(chunks))


def test_one_byte_at_a_time_costs_in_proportion_to_the_length() -> None:
    def seconds(size: int) -> float:
        line = b"data: " + b"x" * size + b"\n\n"
        best = 1e9
        for _ in range(3):
            start = time.process_time()
            read(*(line[i : i + 1] for i in range(len(line))))
            best = min(best, time.process_time() - start)
        return best

    assert seconds(160_000) < 10 * seconds(40_000)


def test_leading_blanks_cost_their_length_and_are_kept_where_no_thinking_follows() -> None:
    start = time.perf_counter()
    splitter = ThinkSplitter()
    for _ in range(160_000):
        splitter.feed("\n")
    assert splitter.feed("answer") == ("", "\n" * 160_000 + "answer")
    assert time.perf_counter() - start < 2


@given(
    blanks=st.lists(st.sampled_from(["", " ", "\n", " \n"]), max_size=6),
    text=st.sampled_from(["<think>a</think>b", "<b", "x", " <think>"]),
)
def test_a_text_cut_into_pieces_is_parted_like_the_whole_one(blanks: list[str], text: str) -> None:
    whole, pieces = ThinkSplitter(), ThinkSplitter()
    whole.feed("".join(blanks) + text)
    for piece in (*blanks, *text):
        pieces.feed(piece)
    assert pieces.end(is_cut_off=False) == whole.end(is_cut_off=False)
