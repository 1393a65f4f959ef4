"""What a store finishes by itself when it is opened, on every database: another tokenizer's index, a scrub cut off."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from perdure.core.display import describe_report
from perdure.core.messages import user
from perdure.core.visibility import EVERYONE
from perdure.store import SessionStore
from perdure.store.maintenance import IndexRebuild
from perdure.store.outputs import BlobStore
from support.store import Backend, conversation

SECRET = "sk-verysecret12345"


def redact(text: str) -> str:
    return text.replace(SECRET, "[REDACTED]")


def keep(store: SessionStore, any_id: str, text: str) -> str:
    sink = store.outputs.begin(any_id, "call_1")
    sink.write(text)
    return sink.close().id


@pytest.mark.spec("I6")
def test_an_index_of_another_tokenizer_is_rebuilt_with_progress(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    store.append(session, [user(f"message number{n}") for n in range(1_200)])
    keep(store, session, "an output with xylophone")
    large = keep(store, session, "another with trombone " * 20_000)
    lines: list[str] = []
    newer = store.reindexer(version=2)
    assert newer.run(lines.append)
    assert "1,222 texts" in lines[0]
    assert lines[-1] == "search: the index is rebuilt"
    assert not newer.run(lines.append), "once is enough"
    assert [h.address for h in store.search("number1199")] == ["m:1220"]
    assert store.search("number0 message")[0].address == "m:21"
    assert len(store.search("xylophone")) == 1
    assert [h.address for h in store.search("trombone")] == [f"output:{large}"]
    # A Perdure with the tokenizer of before mends it likewise when it opens the store.
    again = backend.open()
    again.rebuild.wait()
    assert len(again.search("xylophone")) == 1
    assert not again.reindexer().run(lines.append)
    # The words are there once: taking the conversation away leaves nothing behind.
    again.delete(session)
    assert again.search("message") == []


@pytest.mark.spec("I6")
def test_an_interrupted_rebuild_resumes(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    store.append(session, [user(f"message number{n}") for n in range(1_600)])

    def dying(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.reindexer(version=2).run(dying)
    store.append(session, user("said meanwhile number1600"))
    assert [h.address for h in store.search("number1600")] == ["m:1621"]
    assert store.search("number0") == []
    assert store.reindexer(version=2).run(lambda line: None)
    for number in (0, 499, 500, 1_599, 1_600):
        assert len(store.search(f"number{number}")) == 1


@pytest.mark.spec("I6")
def test_search_works_while_the_index_is_rebuilt_in_the_background(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    store.append(session, [user(f"message number{n}") for n in range(1_600)])
    reached, may_continue = threading.Event(), threading.Event()

    def pause(line: str) -> None:
        reached.set()
        may_continue.wait(30)

    rebuild = IndexRebuild(store.reindexer(version=2))
    rebuild.start(pause)
    assert reached.wait(30)
    store.append(session, user("said meanwhile number1600"))
    report = store.search_index.report("number1600", visibility=EVERYONE)
    assert [h.address for h in report.hits] == ["m:1621"]
    assert report.indexed_share < 1
    assert "the index is being rebuilt: 0% is searchable" in describe_report(report)
    may_continue.set()
    rebuild.wait()
    report = store.search_index.report("number7", visibility=EVERYONE)
    assert [h.address for h in report.hits] == ["m:28"]
    assert report.indexed_share == 1


@pytest.mark.spec("I6")
def test_a_closed_rebuild_continues_in_the_next_process(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    store.append(session, [user(f"message number{n}") for n in range(1_600)])
    first = IndexRebuild(store.reindexer(version=2))
    first.start(lambda line: None)
    first.close()
    second = IndexRebuild(store.reindexer(version=2))
    second.start(lambda line: None)
    second.wait()
    for number in (0, 499, 500, 1_599):
        assert len(store.search(f"number{number}")) == 1


@pytest.mark.spec("I6")
def test_a_small_store_is_rebuilt_before_its_first_search(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    store.append(session, [user(f"message number{n}") for n in range(20)])
    rebuild = IndexRebuild(store.reindexer(version=2))
    rebuild.start(lambda line: None)
    assert len(store.search("number7")) == 1


class Dying:
    """A blob store whose process ends before it removes anything."""

    def __init__(self, blobs: BlobStore) -> None:
        self.begin, self.chunks = blobs.begin, blobs.chunks
        self.display_path, self.copy_to = blobs.display_path, blobs.copy_to

    def remove(self, conversation_id: str, path: str | None = None) -> None:
        raise KeyboardInterrupt


@pytest.mark.spec("E9")
def test_a_scrub_killed_before_removing_the_old_text_is_finished_on_open(backend: Backend, tmp_path: Path) -> None:
    store = backend.open()
    session = conversation(store)
    output = keep(store, session, f"env: {SECRET}")
    store.outputs.blobs = Dying(store.outputs.blobs)
    with pytest.raises(KeyboardInterrupt):
        store.scrub(session, redact)
    again = backend.open()
    metadata, text = again.outputs.get(output), again.outputs.whole(output)
    assert text == "env: [REDACTED]"
    assert (metadata.chars, metadata.sha256) == (len(text), hashlib.sha256(text.encode()).hexdigest())
    assert again.search("verysecret12345") == []
    assert len(again.search("REDACTED")) == 1
    assert backend.execute("SELECT key FROM state WHERE scope = 'erasing'") == []
    if backend.name == "postgresql":
        assert backend.execute("SELECT output FROM output_text") == [(f"{output}.1",)]
    else:
        assert [f.name for f in tmp_path.rglob(f"{output}*")] == [f"{output}.1.txt"]


@pytest.mark.spec("E9")
def test_a_scrub_killed_while_writing_leaves_the_old_text_and_can_be_retried(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    output = keep(store, session, f"env: {SECRET}")
    # As far as it came: the new text was in the blob store, and no row named it.
    writer = store.outputs.blobs.begin(store.conversations.get(session).id, f"{output}.1")
    writer.write(b"env: [REDACTED]")
    writer.finish()
    again = backend.open()
    before, text = again.outputs.get(output), again.outputs.whole(output)
    assert (before.chars, before.sha256) == (len(text), hashlib.sha256(text.encode()).hexdigest())
    assert again.scrub(session, redact).outputs == 1
    assert again.outputs.whole(output) == "env: [REDACTED]"
    # Another secret, later: the text changes its place each time, its id never.
    assert again.scrub(session, lambda t: t.replace("env", "[GONE]")).outputs == 1
    assert again.outputs.read(output, conversation_id=session).text == "[GONE]: [REDACTED]"
    assert output in again.outputs.get(output).location
