"""Parse a record back into its lines, to carry it over where its messages cannot be read any more."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from perdure.context.record.messages import Speaker, Statement, read_statement
from perdure.context.record.passages import Passage, clip, split_passages
from perdure.core.messages import user

CALL = "→"
LABELS: Mapping[Speaker, str] = {"user": "USER", "assistant": "ASSISTANT", "report": "REPORT", "note": "NOTE"}
_SPEAKERS: Mapping[str, Speaker] = {label: speaker for speaker, label in LABELS.items()}
_LINE = re.compile(r"^(?:(USER|ASSISTANT|REPORT|NOTE)(?: \(([^\n]{0,200}?)\))?(?: \[\d+\])?: |→ )", re.MULTILINE)


def parse_record(record: str) -> Iterator[tuple[str, str]]:
    """Yield the label (`→` for a call) and the text of each item; the header and a cut beginning are skipped."""
    starts = list(_LINE.finditer(record))
    ends = [*(m.start() for m in starts[1:]), len(record)][: len(starts)]
    for start, end in zip(starts, ends, strict=True):
        label = start[1] or CALL
        text = record[start.end() : end].rstrip("\n")
        yield label, text if label == CALL else text.replace("\n ", "\n")


def carried_statement(label: str, text: str) -> Statement:
    """The statement of an item that was carried over: the user's words are quoted again as they are."""
    speaker = _SPEAKERS[label]
    if speaker != "user":
        return Statement(speaker, split_passages(text), is_final=True)
    read = read_statement(user(text))
    passages = read.passages if read.speaker == "user" else (Passage(text, clip(text, 240), 1.0),)
    return Statement("user", passages, is_binding=read.is_binding, is_bare=read.is_bare, is_final=True)
