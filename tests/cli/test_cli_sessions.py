"""`perdure sessions`, `usage`, `insights`: tried as a person would, on a real store."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.cli.style import runnable
from perdure.commands.context import left_out_lines
from perdure.core.messages import assistant, user
from perdure.core.usage import CanonicalUsage
from perdure.store.records import CallRecord, RouteRecord, StoredEvent, Totals
from perdure.store.store import open_store
from support.store import FakeClock, compacted
from support.terminal import perdure

KEY = "sk-ant-api03-" + "Ab3dEf6hIj9kLm2nOp5q" * 4


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two conversations: a long one with a cost, and one with a secret in it."""
    home = tmp_path / "home"
    home.mkdir()
    with open_store(home / "perdure.db") as store:
        first = store.create(source="terminal", title="the widgets")
        store.append(first.id, [user("where are the sprockets?"), assistant("Behind the cogs, on shelf 42.")])
        usage = CanonicalUsage(input_tokens=1_000, output_tokens=50, cache_read_tokens=9_000)
        store.ledger.record_call(CallRecord(first.id, route=RouteRecord("p", "m-1"), usage=usage, cost_usd=0.25))
        second = store.create(source="gateway")
        store.append(second.id, [user(f"my key is {KEY}"), assistant("Noted.")])
    return home


def ids(home: Path) -> list[str]:
    return [json.loads(line)["id"] for line in perdure(home, "sessions", "list", "--json").out.splitlines()]


def test_list_shows_titles_and_counts_newest_first(home: Path) -> None:
    shown = perdure(home, "sessions", "list").out
    assert "2 messages  the widgets" in shown
    assert len(ids(home)) == 2
    assert "the widgets" not in perdure(home, "sessions", "list", "--source", "gateway").out
    assert "older ones" in perdure(home, "sessions", "list", "-n", "1").out


def test_an_empty_home_says_how_to_begin(tmp_path: Path) -> None:
    for command in (("sessions", "list"), ("usage",)):
        done = perdure(tmp_path / "none", *command)
        assert (done.status, "perdure chat" in done.out) == (0, True)
    assert perdure(tmp_path / "none", "insights").out == "Nothing in the last 30 days.\n"


@pytest.mark.spec("I5")
def test_search_and_show_open_what_was_said(home: Path) -> None:
    found = perdure(home, "sessions", "search", "sprockets")
    assert "«sprockets»" in found.out
    address = found.out.split()[0]
    assert "where are the sprockets?" in perdure(home, "sessions", "show", address).out
    conversation, inner = address.split("/")
    opened = perdure(home, "sessions", "show", conversation, inner).out
    assert "where are the sprockets?" in opened
    assert re.match(r"\[m:1 · user · \d{4}-\d\d-\d\d \d\d:\d\d\]\n", opened), "the reader's own time"
    whole = perdure(home, "sessions", "show", conversation).out
    assert whole.index("m:1 user") < whole.index("m:2 assistant")
    nothing = perdure(home, "sessions", "search", "nowhere-at-all")
    assert nothing.status == 1
    assert nothing.err.startswith("Nothing found for 'nowhere-at-all'. Searched ")


def test_show_says_why_a_turn_failed_where_it_failed(home: Path) -> None:
    clock = FakeClock()
    with open_store(home / "perdure.db", clock=clock) as store:
        session = store.create(title="no luck")
        store.append(session.id, user("first"))
        store.ledger.record_event(StoredEvent(session.id, "turn_failed", {"reason": "401: wrong key"}))
        clock.pass_ms(10)
        store.append(session.id, user("second"))
    shown = perdure(home, "sessions", "show", session.id).out
    assert shown.index("first") < shown.index("✕ The turn failed: 401: wrong key") < shown.index("second")


def test_a_wrong_id_is_one_plain_line(home: Path) -> None:
    for command in ("show", "export", "delete"):
        done = perdure(home, "sessions", command, "c_nowhere")
        called = runnable("perdure sessions list", f"PERDURE_HOME={home} perdure")
        assert (done.status, done.err) == (
            1,
            f"perdure: no conversation or session 'c_nowhere'; `{called}` shows all\n",
        )


@pytest.mark.spec("I9")
def test_export_and_import_bring_everything_to_another_home(home: Path, tmp_path: Path) -> None:
    (wanted,) = [i for i in ids(home) if "widgets" in perdure(home, "sessions", "show", i).out]
    file, other = tmp_path / "talk.jsonl", tmp_path / "other"
    assert perdure(home, "sessions", "export", wanted, "-o", str(file)).status == 0
    assert perdure(other, "sessions", "import", str(file)).out.startswith(wanted)
    perdure(other, "sessions", "import", str(file))
    assert ids(other) == [wanted]
    perdure(other, "sessions", "import", "--copy", str(file))
    assert len(ids(other)) == 2
    assert "$0.2500" in perdure(other, "usage", wanted).out


def test_a_markdown_file_gets_markdown(home: Path, tmp_path: Path) -> None:
    (wanted,) = [i for i in ids(home) if "widgets" in perdure(home, "sessions", "show", i).out]
    file = tmp_path / "talk.md"
    assert perdure(home, "sessions", "export", wanted, "-o", str(file)).status == 0
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert "## You · " in text
    assert '"role"' not in text


@pytest.mark.spec("I9")
def test_message_lists_go_out_and_come_in(home: Path, tmp_path: Path) -> None:
    (wanted,) = [i for i in ids(home) if "widgets" in perdure(home, "sessions", "show", i).out]
    messages = json.loads(perdure(home, "sessions", "export", "--messages", wanted).out)
    assert [m["role"] for m in messages] == ["user", "assistant"]
    file = tmp_path / "m.json"
    file.write_text(json.dumps(messages), encoding="utf-8")
    perdure(tmp_path / "other", "sessions", "import", str(file))
    assert "where are the sprockets?" in perdure(tmp_path / "other", "sessions", "list").out


@pytest.mark.spec("I9")
def test_a_log_of_another_agent_is_imported_once_and_can_be_removed(home: Path, tmp_path: Path) -> None:
    reply = {"id": "m1", "role": "assistant", "content": [{"type": "text", "text": "In the sprocket drawer."}]}
    rows = [
        {"type": "user", "sessionId": "s-1", "uuid": "a", "message": {"role": "user", "content": "where is it?"}},
        {"type": "assistant", "sessionId": "s-1", "uuid": "b", "message": reply},
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    out = perdure(home, "sessions", "import", str(log)).out
    any_id = out.split()[0]
    assert "2 messages of a claude-code log" in out
    assert f"sessions delete {any_id}" in out
    assert "sprocket drawer" in perdure(home, "sessions", "show", any_id).out
    assert "it was there already" in perdure(home, "sessions", "import", str(log)).out
    perdure(home, "sessions", "delete", "--yes", any_id)
    assert "claude-code log" in perdure(home, "sessions", "import", str(log)).out


def test_what_cannot_be_imported_is_refused_whole(home: Path, tmp_path: Path) -> None:
    for name, text in (("a.jsonl", "not json"), ("b.json", '{"no": "messages"}'), ("c.jsonl", "")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        done = perdure(home, "sessions", "import", str(tmp_path / name))
        assert done.status == 1
        assert done.err
    assert "cannot read" in perdure(home, "sessions", "import", str(tmp_path / "nowhere")).err
    assert len(ids(home)) == 2


def test_delete_asks_first_and_takes_everything_away(home: Path) -> None:
    first, second = ids(home)
    asked = perdure(home, "sessions", "delete", first)
    assert asked.status == 130  # nobody there to answer
    assert len(ids(home)) == 2
    assert "deleted: 2 messages" in perdure(home, "sessions", "delete", "--yes", first).out
    assert ids(home) == [second]


@pytest.mark.spec("E9")
def test_scrub_takes_secrets_out_for_good(home: Path) -> None:
    assert KEY in "".join(perdure(home, "sessions", "show", i).out for i in ids(home))
    assert perdure(home, "sessions", "scrub", "--yes").status == 2
    done = perdure(home, "sessions", "scrub", "--all", "--yes")
    assert "1 messages and 0 tool outputs held secrets" in done.out
    assert KEY not in "".join(perdure(home, "sessions", "show", i).out for i in ids(home))


def test_backup_is_a_store_of_its_own(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    perdure(home, "sessions", "backup", str(copy))
    assert "the widgets" in perdure(home, "--set", f"store.path={copy}", "sessions", "list").out


def test_the_messages_of_a_conversation_are_counted_alike_everywhere(home: Path) -> None:
    with open_store(home / "perdure.db") as store:
        session = store.create(title="counted")
        store.append(session.id, [user(f"m{n}") for n in range(8)])
        compacted(store, session.id)
    (row,) = [line for line in perdure(home, "sessions", "list").out.splitlines() if "counted" in line]
    assert "9 messages" in row
    assert "(8 messages and 1 handoff)" in perdure(home, "sessions", "show", session.id).out
    assert "(7 messages in view)" in perdure(home, "sessions", "show", session.id, "--view").out


def test_usage_and_insights_are_json_for_scripts(home: Path) -> None:
    (wanted,) = [i for i in ids(home) if "widgets" in perdure(home, "sessions", "show", i).out]
    used = json.loads(perdure(home, "usage", wanted, "--json").out)
    assert used["id"] == wanted
    assert (used["input_tokens"], used["cache_read_tokens"], used["cost_usd"]) == (1_000, 9_000, 0.25)
    rows = [json.loads(line) for line in perdure(home, "insights", "--json").out.splitlines()]
    assert {row["by"] for row in rows} == {"day", "model", "source", "task"}
    assert sum(row["cost_usd"] or 0 for row in rows if row["by"] == "model") == 0.25


def test_a_cost_without_a_price_says_which_command_sets_one() -> None:
    priceless = Totals(calls=3, cost_usd=None, unpriced_calls=3, unreported_calls=1)
    used = [("custom", "m-1"), ("openai-codex", "gpt-5"), ("openrouter", "m-1")]
    assert left_out_lines(priceless, used)[-2:] == [
        "no price known for 2 calls; in dollars for a million tokens, in and out:",
        "  `perdure models price m-1 IN OUT`",
    ]
    assert left_out_lines(priceless, used[1:2])[-1] == "no price known for 2 calls", "a subscription has none"
    assert not any("no price" in line for line in left_out_lines(replace(priceless, unpriced_calls=1)))


@pytest.mark.spec("A7")
def test_usage_and_insights_keep_cached_tokens_apart(home: Path) -> None:
    (wanted,) = [i for i in ids(home) if "widgets" in perdure(home, "sessions", "show", i).out]
    used = perdure(home, "usage", wanted).out
    for line in (
        "input, fresh              1,000",
        "input, from cache         9,000",
        "cost                    $0.2500",
    ):
        assert line in used
    shown = perdure(home, "insights", "7").out
    for group in ("by day", "by model", "by source", "by task"):
        assert group in shown
    assert "9,000" in shown
    assert "10,050" not in shown
    assert perdure(home, "insights", "0").status == 2
