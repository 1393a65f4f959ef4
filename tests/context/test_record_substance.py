"""The record keeps what is of use later, once: addresses and hits that were used, no empty words, no call in view."""

from __future__ import annotations

import json

import pytest

from perdure.context.record.record import RecordSource, call_lines, draw_record
from perdure.context.tool_calls.describe import describe_call
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user


def entries(messages: list[Message]) -> list[Entry]:
    return [Entry(n, m) for n, m in enumerate(messages)]


class Session:
    def __init__(self) -> None:
        self.messages: list[Message] = [user("Find where the level is computed.")]

    def call(self, name: str, result: str, **arguments: str) -> None:
        number = f"c{len(self.messages)}"
        call = ToolCall(number, name, json.dumps(arguments))
        self.messages += [assistant("", (call,)), tool_result(number, result)]

    def search(self, pattern: str, *hits: str) -> None:
        self.call("Grep", "\n".join(hits), pattern=pattern, path="/home/a/work/tides/src")

    def record(self, budget: int = 8_000) -> str:
        return draw_record(entries(self.messages), budget=budget)


class TestResearch:
    def test_a_hit_of_a_web_search_keeps_its_address(self) -> None:
        hits = [{"title": f"Tides {n}", "url": f"https://a.example/{n}/tide", "snippet": "High."} for n in range(2)]
        line = describe_call(ToolCall("1", "web_search", '{"query": "tides"}'), json.dumps(hits))
        assert "Tides 1 (https://a.example/1/tide): High." in line.detail

    def test_a_long_page_is_to_be_fetched_again(self) -> None:
        page = "# Tides\n\n" + "The tide is high twice a day, and low twice.\n\n" * 200
        line = describe_call(ToolCall("1", "web_fetch", '{"url": "https://a.example/tides"}'), page).line
        assert "https://a.example/tides" in line
        assert "most of it not kept: fetch again" in line

    def test_a_short_page_is_not(self) -> None:
        page = "# Tides\n\nThe tide is high twice a day, and low twice."
        line = describe_call(ToolCall("1", "web_fetch", '{"url": "https://a.example/tides"}'), page).line
        assert "fetch again" not in line


class TestHunts:
    def hunt(self) -> Session:
        session = Session()
        for n in range(4):
            session.search(f"level_{n}", f"work/tides/src/part_{n}.py:{n + 10}: level_{n} = read()", "--", "x" * 20)
        session.call("Read", "1\tlevel_2 = read()", file_path="/home/a/work/tides/src/part_2.py")
        for name in ("one", "two", "three"):
            session.call(
                "Edit", "Updated.", file_path="/home/a/work/tides/src/part_2.py", old_string=name, new_string="n"
            )
        return session

    def test_the_hits_that_were_used_remain(self) -> None:
        record = self.hunt().record()
        assert "12: level_2 = read()" in record
        assert "11: level_1 = read()" not in record
        assert "level_1" in record

    def test_the_paths_of_hits_begin_where_those_of_calls_do(self) -> None:
        assert "\n  part_2.py:12: level_2" in self.hunt().record()

    def test_a_hunt_that_goes_on_keeps_its_hits(self) -> None:
        session = self.hunt()
        for n in range(4, 9):
            session.search(f"level_{n}", f"work/tides/src/part_{n}.py:{n + 10}: level_{n} = read()", "--", "x" * 20)
        assert "18: level_8 = read()" in session.record()


class TestEmptyWords:
    def test_the_note_of_a_program_that_removed_a_reply_is_left_out(self) -> None:
        messages = [user("Which tide?"), assistant("[Compacted history content evicted to durable cold storage]")]
        assert "evicted" not in draw_record(entries(messages), budget=4_000)

    @pytest.mark.parametrize("budget", range(200, 700, 50))
    def test_that_something_is_done_is_not_told_without_what(self, budget: int) -> None:
        level = "The level of gauge 7 is read from `port=36641` at /srv/tides/level.toml by the office of the harbour. "
        reply = f"Cleanup complete.\n\n{level * 5}"
        record = draw_record(entries([user("Go on with gauge 7 please."), assistant(reply)]), budget=budget)
        assert ("Cleanup complete" in record) <= ("36641" in record)

    def test_a_reply_of_two_words_remains(self) -> None:
        record = draw_record(entries([user("Please clean up."), assistant("Cleanup complete.")]), budget=4_000)
        assert "Cleanup complete." in record

    def test_a_text_that_was_printed_letter_by_letter_is_left_out(self) -> None:
        printed = "Commit: 12ab34c\n" + "\n".join(f"{n}: {x}" for n, x in enumerate("Directory structure of it"))
        line = describe_call(ToolCall("1", "python", json.dumps({"code": "print(tree)"})), printed)
        assert "3: e" not in line.detail
        assert "12ab34c" in line.detail


def test_rules_name_the_file_they_are_from() -> None:
    session = Session()
    session.call("Read", "# Rules\n\n" + "- Never push to the main branch of tides.\n" * 12, file_path="/w/AGENTS.md")
    session.call("Edit", "Updated.", file_path="/w/a.py", old_string="level = 1", new_string="level = 2")
    assert "rules of /w/AGENTS.md:" in session.record()


def test_a_call_whose_result_is_in_view_is_not_told() -> None:
    code = "level = gauge.read_level(day=12)\nprint(level)"
    finding = "The gauge at the quay stopped at noon on May 4th, so the level is 12 hours old."
    inner = assistant(finding, (ToolCall("c1", "python", json.dumps({"code": code})),))
    raw = f"Calling tools:\n[{{'id': 'call_1', 'function': {{'name': 'python', 'arguments': {code!r}}}}}]"
    outer = assistant("", (ToolCall("c2", "call", json.dumps({"raw": raw})),))
    messages = [user("Which level?"), inner, outer, tool_result("c2", "Observation:\nExecution logs:\n417")]
    every = entries(messages)
    covered = RecordSource(every[:2], call_lines(every), root="")
    assert "417" not in covered.draw(4_000)
    assert finding in covered.draw(4_000)
