"""What is no secret stays as it is, to the character."""

from __future__ import annotations

import string
from base64 import b64encode
from hashlib import sha1, sha256, sha512
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from benchmarks.data import EVAL, Skip, sessions

from perdure.redaction import find_secrets, redact
from support.innocent_documents import drawn_texts, innocent_documents
from support.innocent_identifiers import identifier_lines
from support.innocent_keys import innocent_key_lines
from support.innocent_text import innocent_lines

LINES = [*innocent_lines(), *identifier_lines()]


@pytest.mark.spec("E9")
@pytest.mark.parametrize("line", LINES, ids=[f"{i}-{line[:30]!r}" for i, line in enumerate(LINES)])
def test_a_line_that_holds_no_secret_is_left_alone(line: str) -> None:
    assert redact(line) == line
    assert redact(f"  12→{line}\n  13→\n") == f"  12→{line}\n  13→\n"


def test_two_hundred_ordinary_documents_are_left_alone() -> None:
    documents = innocent_documents()
    assert len(documents) == 200
    assert [text for text in (*documents, *drawn_texts(1_000, seed=12)) if redact(text) != text] == []


def test_samples_of_code_logs_locks_ids_and_placeholders_are_left_alone() -> None:
    """Written without knowledge of the patterns: lock files, hashes, keys that are public, docs about secrets."""
    text = (Path(__file__).parents[1] / "support" / "data" / "innocent_samples.txt").read_text("utf-8")
    samples = [sample.partition("\n")[2] for sample in text.split("%%% ")[1:]]
    assert len(samples) >= 230
    assert [sample for sample in samples if redact(sample) != sample] == []


@pytest.mark.spec("E9")
@pytest.mark.parametrize("seed", range(3))
def test_lines_that_speak_of_keys_beside_hashes_and_ids_are_left_alone(seed: int) -> None:
    lines = list(innocent_key_lines(seed))
    assert len(lines) >= 220
    assert [line for line in lines if redact(line) != line] == []
    text = "\n".join(lines)
    assert [text[s.start : s.end] for s in find_secrets(text)] == []


def test_all_of_them_together_are_left_alone() -> None:
    text = "\n".join(LINES)
    assert [text[s.start : s.end] for s in find_secrets(text)] == []


@pytest.mark.spec("E9")
def test_hashes_ids_paths_and_encoded_images_are_left_alone() -> None:
    rng = Random(3)
    for _ in range(200):
        data = rng.randbytes(16)
        for value in (
            sha1(data).hexdigest(),
            sha256(data).hexdigest(),
            f"sha512-{b64encode(sha512(data).digest()).decode()}",
            str(UUID(bytes=data)),
            f"/home/me/.cache/{data.hex()}/blob-{data.hex()[:7]}.tar.gz",
            f"data:image/png;base64,{b64encode(rng.randbytes(3000)).decode()}",
            f'{{"id": "toolu_{data.hex()}", "session_id": "{UUID(bytes=data)}"}}',
        ):
            assert redact(f"see {value} there") == f"see {value} there"


def test_encoded_data_is_left_alone_even_where_a_key_occurs_in_it_by_chance() -> None:
    rng = Random(5)
    half = "".join(rng.choices(string.ascii_letters + string.digits + "+/", k=4000))
    by_chance = "AKIA" + "".join(rng.choices(string.ascii_uppercase, k=16))
    assert redact(f"{half}/{by_chance}/{half}") == f"{half}/{by_chance}/{half}"
    assert redact(f"{by_chance} {half}") == f"AKIA…[REDACTED] {half}"


def test_the_code_of_this_package_and_the_standard_library_hold_no_secret() -> None:
    import http
    import json

    import perdure

    roots = [Path(module.__file__ or "").parent for module in (perdure, json)] + [Path(http.__file__ or "").parent]
    changed = []
    for path in (path for root in roots for path in root.rglob("*.py")):
        text = path.read_text("utf-8")
        changed += [(path.name, text[s.start - 30 : s.end]) for s in find_secrets(text)]
    assert changed == []


def test_recorded_sessions_which_hold_no_secret_are_unchanged() -> None:
    files = sorted((EVAL / "data").glob("*.jsonl.gz"))
    if not files:
        pytest.skip("recorded sessions are not here")
    try:
        smallest = min(files, key=lambda path: path.stat().st_size)
        texts = [str(m.get("content")) for s in sessions(smallest.name[: -len(".jsonl.gz")]) for m in s["messages"]]
    except Skip as why:
        pytest.skip(str(why))
    assert sum(redact(text) != text for text in texts) == 0
