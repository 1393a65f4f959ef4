"""Tool outputs, on every database: whole, pageable, searchable, gone with their conversation."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.core.errors import NotFound
from perdure.store import SessionStore
from perdure.store.outputs import INDEXED_CHARS
from support.store import Backend, conversation


def keep(store: SessionStore, any_id: str, *pieces: str, call: str = "call_1"):
    sink = store.outputs.begin(any_id, call)
    for piece in pieces:
        sink.write(piece)
    return sink.close()


@pytest.mark.spec("H4")
def test_an_output_is_read_completely_page_by_page(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    pieces = [f"line {n} — ünïcode 模型 🦜\r\n" for n in range(5_000)]
    whole = "".join(pieces)
    output = keep(store, session, *pieces)
    assert (output.chars, output.sha256) == (len(whole), hashlib.sha256(whole.encode()).hexdigest())
    again = backend.open()
    text, offset = "", 0
    while offset is not None:
        page = again.outputs.read(output.id, conversation_id=session, offset=offset, limit=7_001)
        text, offset = text + page.text, page.next_offset
    assert text == whole
    assert page.total_chars == len(whole)
    assert [o.id for o in again.outputs.list(session)] == [output.id]
    assert again.open(output.address, conversation_id=session, offset=5, limit=9).text == whole[5:14]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=300), offset=st.integers(-5, 320), limit=st.integers(-2, 320))
def test_any_page_is_a_slice_of_the_text(store: SessionStore, text: str, offset: int, limit: int) -> None:
    session = store.create()
    output = keep(store, session.id, text)
    page = store.outputs.read(output.id, conversation_id=session.id, offset=offset, limit=limit)
    start, size = max(0, offset), max(1, limit)
    assert page.text == text[start : start + size]
    assert (page.next_offset is None) == (start + size >= len(text))


@pytest.mark.spec("H4", "I6")
def test_outputs_are_found_whether_indexed_or_too_large_for_it(store: SessionStore) -> None:
    session = conversation(store)
    small = keep(store, session, "Traceback: ZeroDivisionError in billing.py", call="a")
    filler = "0123456789 lorem ipsum\n" * 1_000
    large = keep(
        store, session, *[filler] * (INDEXED_CHARS // len(filler) + 2), "FATAL needle_in_haystack 針 end", call="b"
    )
    assert large.chars > INDEXED_CHARS
    assert [h.address for h in store.search("ZeroDivisionError")] == [small.address]
    for query in ("needle_in_haystack", "NEEDLE_in_haystack fatal", "針", '"fatal needle_in_haystack"'):
        assert [h.address for h in store.search(query)] == [large.address], query
    (hit,) = store.search("needle_in_haystack", scope={"conversation": session})
    assert "«needle_in_haystack»" in hit.snippet
    assert hit.tip_session_id == session
    assert store.search("needle_in_haystack", scope={"role": "user"}) == []
    assert store.search("needle_in_haystack", scope={"conversation": store.create().id}) == []


@pytest.mark.spec("H4")
def test_an_aborted_output_leaves_nothing(store: SessionStore) -> None:
    session = conversation(store)
    sink = store.outputs.begin(session, "call_1")
    sink.write("half of it")
    sink.abort()
    assert store.outputs.list(session) == []


def test_an_unknown_output_or_conversation_is_rejected(store: SessionStore) -> None:
    session = conversation(store)
    for ident in ("o_none", "../../etc/passwd", "", "\0"):
        with pytest.raises(NotFound):
            store.outputs.read(ident, conversation_id=session)
    with pytest.raises(NotFound):
        store.outputs.begin("c_nowhere", "call_1")


@pytest.mark.spec("H4")
def test_a_tool_call_id_never_becomes_a_path(store: SessionStore) -> None:
    session = conversation(store)
    output = keep(store, session, "x", call="../../../etc/cron.d/evil\0")
    assert store.outputs.get(output.id).tool_call_id == "../../../etc/cron.d/evil"
    assert ".." not in output.location
