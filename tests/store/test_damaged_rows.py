"""Damage that the hash chain does not cover: each damaged row is named, the rest opens, and nothing hangs."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from perdure.core.messages import user
from perdure.store import SessionStore, Span, open_store
from perdure.testing.simulator import Simulator
from support.damage import (
    REPLACEMENTS,
    Template,
    build_template,
    change_value,
    deadline,
    flip_bytes,
    run_commands,
    values_of,
    verified_content,
)
from support.store import compacted, conversation
from support.terminal import perdure


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return build_template(tmp_path_factory.mktemp("template") / "home")


def rowid_of(path: Path, sql: str) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(sql).fetchone()[0])
    finally:
        connection.close()


MESSAGE = "SELECT rowid FROM message WHERE seq = 5 AND conversation = (SELECT id FROM conversation WHERE rowid = 1)"
TIP = "SELECT session.rowid FROM session JOIN conversation c ON c.tip = session.id WHERE c.rowid = 1"
# (table, column, replacement, row, what the report says)
DAMAGE = {
    "a blob that became text": (
        "message",
        "body",
        "text of the same bytes",
        MESSAGE,
        "m:5 has a body of the wrong type",
    ),
    "a body that became a number": ("message", "body", "float", MESSAGE, "m:5 is damaged and cannot be read"),
    "a key that became text": ("message", "key", "text of the same bytes", MESSAGE, "m:5 "),
    "an unknown kind": ("message", "kind", "flipped", MESSAGE, "m:5 has the kind"),
    "a message without a kind": ("message", "kind", "null", MESSAGE, "m:5 has the kind"),
    "an encoding": ("message", "encoding", "negative", MESSAGE, "m:5 has the encoding -1"),
    "the state of a call": ("message", "tool_state", "text", MESSAGE, "m:5 has the tool state 'damaged'"),
    "a message's time": ("message", "created_at", "huge", MESSAGE, "m:5 has an impossible time"),
    "a message's session": ("message", "session", "flipped", MESSAGE, "table session"),
    "a message's position": ("message", "seq", "far", MESSAGE, "m:5 is missing"),
    "an end of the log far away": ("conversation", "last_seq", "far", "SELECT 1", "last_seq is 4294967"),
    "an end of the log too early": ("conversation", "last_seq", "zero", "SELECT 1", "last_seq is 0"),
    "a last key": ("conversation", "last_key", "flipped", "SELECT 1", "last_key is not the key"),
    "a tip": ("conversation", "tip", "flipped", "SELECT 1", "which is not one of its sessions"),
    "no tip": ("conversation", "tip", "null", "SELECT 1", "which is not one of its sessions"),
    "a kind of conversation": ("conversation", "kind", "text", "SELECT 1", "kind is 'damaged'"),
    "a time": ("conversation", "updated_at", "huge", "SELECT 1", "updated_at is an impossible time"),
    "a time that is text": ("conversation", "updated_at", "text", "SELECT 1", "updated_at is an impossible time"),
    "a first message": ("session", "first_seq", "next", TIP, "table session"),
    "a span": ("span", "hi", "next", "SELECT MIN(rowid) FROM span", "table session"),
    "a session's model": ("session", "model", "text", TIP, "differ from what was stored"),
    "a handoff": ("handoff", "covers", "text", "SELECT MIN(rowid) FROM handoff", "table handoff, row h:"),
}


@pytest.mark.spec("I8")
@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_row_is_named_and_the_rest_opens(template: Template, tmp_path: Path, what: str) -> None:
    table, column, replacement, row, report = DAMAGE[what]
    path = template.copy(tmp_path / "home")
    assert change_value(path, table, rowid_of(path, row), column, replacement)
    with deadline(20), open_store(path) as store:
        lines = [str(d) for batch in store.verifier.everything() for d in batch.damage]
        assert any(report in line for line in lines), lines
        assert len(store.conversations.list().conversations) == 3
        assert store.search("question")
        for ident in template.ids:
            assert store.log.originals(ident)
            assert store.history(ident).entries is not None
            assert list(store.transfer.export_jsonl(ident))
    assert perdure(path.parent, "doctor", "--offline").status == 1
    assert perdure(path.parent, "sessions", "list").status == 0


def test_a_healthy_database_has_no_damage(template: Template, tmp_path: Path) -> None:
    with open_store(template.copy(tmp_path / "home")) as store:
        assert store.verifier.database().problems == ()
        assert [d for batch in store.verifier.everything() for d in batch.damage] == []
        assert store.history(template.ids[0]).damage == ()


def test_a_conversation_with_a_missing_tip_continues_in_its_newest_session(template: Template, tmp_path: Path) -> None:
    path = template.copy(tmp_path / "home")
    with open_store(path) as store:
        tip, seqs = store.get_compression_tip(template.ids[0]), [e.seq for e in store.history(template.ids[0]).entries]
    assert change_value(path, "conversation", 1, "tip", "flipped")
    with open_store(path) as store:
        assert store.get_compression_tip(template.ids[0]) == tip
        assert [e.seq for e in store.history(template.ids[0]).entries] == seqs
        assert store.append(template.ids[0], user("and on")).session_id == tip
        assert store.verifier.conversation(template.ids[0]) == []


def test_a_conversation_that_is_its_own_parent_opens_and_is_named(template: Template, tmp_path: Path) -> None:
    path = template.copy(tmp_path / "home")
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE conversation SET parent = id WHERE kind <> 'main'")
    connection.close()
    branch, delegate = template.ids[1:3]
    with deadline(20), open_store(path) as store:
        assert [e.message.text for e in store.log.originals(branch)] == ["in the branch"]
        assert "a circle" in str(store.verifier.conversation(branch)[-1])
        assert "parent is the conversation itself" in str(store.verifier.conversation(delegate)[0])
        assert store.delete(delegate).conversation_ids == (delegate,)


def hide_from_index(path: Path, owner: str) -> None:
    """Move the newest message of a conversation past the index on (conversation, seq)."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("DROP TRIGGER message_never_goes")
    (columns,) = connection.execute(
        "SELECT group_concat(name) FROM pragma_table_info('message') WHERE name <> 'id'"
    ).fetchone()
    newest = "conversation = ? ORDER BY seq DESC LIMIT 1"
    row = connection.execute(f"SELECT {columns} FROM message WHERE {newest}", (owner,)).fetchone()
    connection.execute(f"DELETE FROM message WHERE id = (SELECT id FROM message WHERE {newest})", (owner,))
    schema = connection.execute("SELECT * FROM sqlite_master WHERE name = 'sqlite_autoindex_message_1'").fetchone()
    (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'message'").fetchone()
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("DELETE FROM sqlite_master WHERE name = 'sqlite_autoindex_message_1'")
    bare = sql.replace(", UNIQUE (conversation, seq)", "")
    connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'message'", (bare,))
    connection.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"INSERT INTO message ({columns}) VALUES ({', '.join('?' * len(row))})", row)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", schema)
    connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'message'", (sql,))
    connection.close()


def test_messages_lost_behind_a_damaged_index_are_reported(template: Template, tmp_path: Path) -> None:
    path = template.copy(tmp_path / "home")
    owner = template.ids[3]
    hide_from_index(path, owner)
    with open_store(path) as store:
        (damage,) = store.history(owner).damage
        assert "last_seq is 8, but the newest stored message is m:7" in str(damage)
        assert "missing from index" in store.verifier.database().problems[0]
        assert "REINDEX" in store.verifier.database().problems[0]
    assert "BROKEN  database" in perdure(path.parent, "doctor", "--offline").out


def test_rows_on_a_damaged_page_are_unreadable_and_the_others_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "home" / "perdure.db"
    path.parent.mkdir()
    with open_store(path) as store:
        session = store.create()
        store.append(session.id, [user(f"{n} {random.Random(n).randbytes(200).hex()}") for n in range(60)])
    data = bytearray(path.read_bytes())
    at = (data.index(b'"30 ') // 4096) * 4096
    data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)
    with open_store(path) as store:
        history = store.history(session.id)
        assert {d.problem for d in history.damage} == {"unreadable"}
        assert 0 < len(history.damage) < 20
        assert len(history.entries) == 60
        texts = [e.message.text for e in history.entries]
        assert sum("is damaged" in text for text in texts) == len(history.damage)
        assert len(list(store.transfer.export_jsonl(session.id))) > 60
        assert {d.seq for d in store.verifier.conversation(session.id)} >= {d.seq for d in history.damage}


def test_a_changed_output_is_reported(template: Template, tmp_path: Path) -> None:
    path = template.copy(tmp_path / "home")
    (output,) = (path.parent / "perdure.db.outputs").rglob("*.txt")
    output.write_text(output.read_text().replace("a listing", "a fisting", 1))
    with open_store(path) as store:
        (damage,) = store.verifier.conversation(template.ids[0])
    assert str(damage).startswith("table output, row o_")


def test_a_prompt_changed_on_disk_is_reported_but_not_one_that_was_set_or_scrubbed(tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    with open_store(path) as store:
        session = conversation(store)
        store.conversations.set_system_prompt(session, "Be brief, and kind.")
        compacted(store, session)
        store.scrub(session, lambda text: text.replace("kind", "[REDACTED]"))
        assert _damage(store, session) == []
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE session SET system_prompt = CAST('Be rude.' AS BLOB)")
    connection.close()
    with open_store(path) as store:
        assert len(_damage(store, session)) == 2
        assert store.log.read(session, Span(1, 1))


def _damage(store: SessionStore, any_id: str) -> list[str]:
    return [str(d) for d in store.verifier.conversation(any_id)]


def fuzz_values(template: Template, home: Path, *, count: int, seed: int) -> None:
    cases = [(*value, name) for value in values_of(template.path) for name in REPLACEMENTS]
    chance = random.Random(seed)
    before = verified_content(template.path)
    with Simulator(script=lambda request: "Fine.") as sim:
        for case in chance.sample(cases, count):
            path = template.copy(home)
            if change_value(path, *case):
                is_changed = verified_content(path) != before
                done = run_commands(home, template.ids[:2], sim.base_url)
                assert not is_changed or (done["verify"].status, done["doctor"].status) == (1, 1), case


def fuzz_bytes(template: Template, home: Path, *, count: int, seed: int) -> None:
    chance = random.Random(seed)
    before = verified_content(template.path)
    with Simulator(script=lambda request: "Fine.") as sim:
        for _ in range(count):
            path = template.copy(home)
            places = flip_bytes(path, chance, count=chance.choice((1, 1, 1, 2, 8)))
            is_changed = verified_content(path) != before
            done = run_commands(home, template.ids[:2], sim.base_url)
            assert not is_changed or (done["verify"].status, done["doctor"].status) == (1, 1), places


@pytest.mark.slow
@pytest.mark.parametrize("fuzz", [fuzz_values, fuzz_bytes])
def test_any_damage_is_reported_plainly(template: Template, tmp_path: Path, fuzz: object) -> None:
    assert callable(fuzz)
    fuzz(template, tmp_path / "home", count=12, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("fuzz", [fuzz_values, fuzz_bytes])
def test_two_thousand_kinds_of_damage_are_reported_plainly(template: Template, tmp_path: Path, fuzz: object) -> None:
    assert callable(fuzz)
    fuzz(template, tmp_path / "home", count=1_000, seed=2)
