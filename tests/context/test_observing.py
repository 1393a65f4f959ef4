"""Per-message work as messages come: not for a conversation that may never be compacted, in time for one that will."""

import subprocess
import sys

from perdure.context.compressor import ContextCompressor
from perdure.core.messages import Entry, assistant, user


def _entries(count: int, *, first: int = 1) -> list[Entry]:
    words = "The build of src/app/main.py failed with code 4711. " * 20
    return [Entry(n, user(f"{n}: {words}")) for n in range(first, first + count)]


def _is_read(entry: Entry) -> bool:
    unread = object()
    return entry.memo("facts", lambda message: unread) is not unread


def test_a_short_conversation_is_not_read_for_facts():
    engine = ContextCompressor(context_length=200_000)
    entries = _entries(3)

    engine.observe(entries)

    assert not any(map(_is_read, entries))


def test_half_way_to_the_threshold_everything_said_so_far_is_read():
    engine = ContextCompressor(context_length=20_000)
    entries = _entries(40)

    for entry in entries:
        engine.observe([entry])

    assert all(map(_is_read, entries))


def test_after_a_reply_a_bounded_number_of_messages_is_read():
    engine = ContextCompressor(context_length=200_000)
    entries = _entries(120)

    engine.observe(entries)
    assert not any(e.get_memo("facts") for e in entries)
    engine.observe([Entry(200, assistant("Done."))])

    assert [e.get_memo("facts") is not None for e in entries] == [True] * 100 + [False] * 20


def test_a_compaction_asked_for_early_reads_what_was_left():
    engine = ContextCompressor(context_length=200_000)
    entries = _entries(30)
    engine.observe(entries)

    made = engine.compress(entries, reason="user")

    assert made.handoff_data is not None
    assert "src/app/main.py" in "".join(made.handoff_data.sections.values())


def test_the_first_reply_does_not_wait_for_the_import_of_the_record():
    code = """
import sys, threading
from perdure.context.compressor import ContextCompressor
from perdure.core.messages import Entry, assistant, user

engine = ContextCompressor(context_length=200_000)
asked = [Entry(n, user(f"{n}: " + "The build of src/app/main.py failed with code 4711. " * 20)) for n in range(60)]
engine.observe(asked)
assert "perdure.context.handoff_writer" not in sys.modules
engine.observe([Entry(200, assistant("Done."))])
assert not any(e.get_memo("facts") for e in asked)
for thread in threading.enumerate():
    if thread.name == "perdure-import":
        thread.join()
engine.observe([Entry(201, assistant("Done."))])
assert all(e.get_memo("facts") for e in asked)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_conversation_that_goes_on_has_the_record_imported_before_its_next_message():
    code = """
import sys, threading
from perdure.context.compressor import ContextCompressor, _is_writer_imported
from perdure.core.messages import Entry, assistant, user

engine = ContextCompressor(context_length=200_000)
answer = "The build of src/app/main.py failed with code 4711. " * 100
engine.observe([Entry(0, user("Build it.")), Entry(1, assistant(answer))])
assert not _is_writer_imported()  # a single question needs no handoff
engine.observe([Entry(2, user("Why?")), Entry(3, assistant(answer))])
engine.observe([Entry(4, user("Go on."))])
assert _is_writer_imported()
assert all(thread.name != "perdure-import" for thread in threading.enumerate())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
