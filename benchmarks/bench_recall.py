"""Search by plain questions: is a source among the first five hits? Two public question sets and recorded sessions.

The constants of the ranking were chosen on the first half of each set; the second half is measured here. The sets are
not part of the repository. Clone `snap-research/LoCoMo` and `mohammadtavakoli78/BEAM` from GitHub into the folder of
the recorded sessions (see `benchmarks/data.py`) as `data/LoCoMo` and `data/BEAM`, or say where they are:

    python -m benchmarks.bench_recall [--half first|second] [--locomo FILE] [--beam FOLDER]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.bench_retention import load_scorer, recorded_cases
from benchmarks.data import EVAL, Skip
from benchmarks.table import Row, render
from perdure.core.visibility import EVERYONE
from perdure.store import SessionStore, open_store

TITLE = "Search by plain questions"

_T = TypeVar("_T")
_FIRST = 5
LOCOMO = EVAL / "data" / "LoCoMo" / "data" / "locomo10.json"
BEAM = EVAL / "data" / "BEAM"
# Not about single messages: what was never said, and summaries of everything.
_OTHER_KINDS = ("abstention", "summarization", "event_ordering")
# The recorded sessions that questions were written about: file, number of the case; the first three were tuned on.
_CASES = (
    ("deerflow", 0), ("entire_cli", 0), ("entire_cli", 13), ("entire_cli", 2), ("entire_cli", 9), ("pi_mono", 0),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the places that answer it."""

    text: str
    sources: frozenset[Hashable]


@dataclass(frozen=True, slots=True)
class Talk:
    """Conversations to store, each with its title, and the questions about them."""

    conversations: tuple[tuple[str, tuple[dict[str, Any], ...]], ...]
    questions: tuple[Question, ...]
    # Whether sources are conversations instead of messages.
    is_by_conversation: bool = False


def rows(half: str = "second", locomo: Path = LOCOMO, beam: Path = BEAM) -> Iterator[Row]:
    measured = 0
    sets: list[tuple[str, str, Callable[[], list[Talk]]]] = [
        ("LoCoMo, a store for each talk", ">= 95", lambda: locomo_talks(locomo, half)),
        ("LoCoMo, one store", ">= 88", lambda: [merge_talks(locomo_talks(locomo, half))]),
        ("BEAM-100K", ">= 68", lambda: beam_talks(beam, half)),
        ("recorded sessions", ">= 80", lambda: recorded_talks(half)),
    ]
    for name, bar, load in sets:
        try:
            talks = load()
        except Skip as why:
            print(f"{name}: skipped, {why}")
            continue
        measured += 1
        for label, with_vectors in (("words alone", False), ("with `recall`", True)):
            found = _measure(talks, with_vectors=with_vectors)
            note = f"{found.questions} questions, p95 {found.p95_ms:.0f} ms"
            yield Row(f"{name}, {label}", found.share, "%", bar if not with_vectors else None, note)
            if found.entry_share is not None:
                yield Row(f"{name}, {label}, hits with their replies", found.entry_share, "%")
    if not measured:
        raise Skip("no question set is here")


@dataclass(frozen=True, slots=True)
class _Found:
    """How many percent of the questions have a source among the first five messages."""

    share: float
    questions: int
    p95_ms: float
    # The same for the first five hits of a report, each with the reply that is shown with it.
    entry_share: float | None


def _measure(talks: Sequence[Talk], *, with_vectors: bool) -> _Found:
    hits, entries, times = [], [], []
    for talk in talks:
        folder = tempfile.TemporaryDirectory(prefix="perdure-recall-")
        with folder as name, open_store(Path(name) / "recall.db") as store:
            places = store_talk(store, talk)
            if with_vectors:
                store.vectors.catch_up()
            else:
                # Nothing is compared before vectors were made.
                store.vectors.close()
            for question in talk.questions:
                started = time.perf_counter()
                results = store.search(question.text, limit=200 if talk.is_by_conversation else _FIRST)
                times.append((time.perf_counter() - started) * 1_000)
                order: list[Hashable] = [places[h.conversation_id, h.address] for h in results if h.address[:2] == "m:"]
                if talk.is_by_conversation:
                    order = list(dict.fromkeys(places[h.conversation_id, h.address][0] for h in results))
                else:
                    entries.append(not question.sources.isdisjoint(_entries(store, question.text, places)))
                hits.append(not question.sources.isdisjoint(order[:_FIRST]))
    return _Found(
        100 * sum(hits) / len(hits),
        len(hits),
        sorted(times)[int(len(times) * 0.95)],
        100 * sum(entries) / len(entries) if entries else None,
    )


def _entries(
    store: SessionStore, question: str, places: Mapping[tuple[str, str], tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the places of the messages that a surface shows first: hits, and the replies shown with them."""
    for hit in store.search_index.report(question, visibility=EVERYONE, limit=2 * _FIRST).hits[:_FIRST]:
        addresses = (hit.address, hit.answer.address if hit.answer is not None else "")
        yield from (places[hit.conversation_id, a] for a in addresses if (hit.conversation_id, a) in places)


def store_talk(store: SessionStore, talk: Talk) -> dict[tuple[str, str], tuple[int, int]]:
    """Store the conversations; returns the place of each message: its conversation's number and its own, from 0."""
    places = {}
    for number, (title, messages) in enumerate(talk.conversations):
        session = store.create(system_prompt="", title=title)
        store.append(session.id, messages)
        places.update({(session.conversation_id, f"m:{n + 1}"): (number, n) for n in range(len(messages))})
    return places


def locomo_talks(path: Path, half: str) -> list[Talk]:
    """Talks of two people over months; a question names the sessions with its evidence."""
    if not path.is_file():
        raise Skip(f"{path} is not here")
    talks = []
    for talk in _half(json.loads(path.read_text("utf-8")), half):
        said = talk["conversation"]
        count = next(n for n in range(1, 1_000) if f"session_{n}" not in said)
        conversations = tuple(
            (said.get(f"session_{n}_date_time", ""), tuple(map(_line, said[f"session_{n}"]))) for n in range(1, count)
        )
        questions = (
            Question(str(q["question"]), frozenset(_session_numbers(q.get("evidence", [])))) for q in talk["qa"]
        )
        talks.append(Talk(conversations, tuple(q for q in questions if q.sources), is_by_conversation=True))
    return talks


def _session_numbers(evidence: Iterable[str]) -> Iterator[int]:
    yield from (int(n) - 1 for e in evidence for n in re.findall(r"D(\d+):", e))


def _line(turn: dict[str, Any]) -> dict[str, Any]:
    image = f" [shared an image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return {"role": "user", "content": f"{turn['speaker']}: {turn['text']}{image}"}


def merge_talks(talks: Sequence[Talk]) -> Talk:
    """Return all talks as one."""
    conversations: list[tuple[str, tuple[dict[str, Any], ...]]] = []
    questions: list[Question] = []
    for talk in talks:
        first = len(conversations)
        conversations += talk.conversations
        questions += [
            Question(q.text, frozenset(first + n for n in q.sources if isinstance(n, int))) for q in talk.questions
        ]
    return Talk(tuple(conversations), tuple(questions), is_by_conversation=True)


def beam_talks(folder: Path, half: str, kind: str | None = None) -> list[Talk]:
    """Long chats with a model; a question names its source messages. With `kind`, only its questions, all of them."""
    if not folder.is_dir():
        raise Skip(f"{folder} is not here")
    git_dir = folder / ".git" if (folder / ".git").exists() else folder

    def read(path: str) -> str:
        command = ["git", f"--git-dir={git_dir}", "show", f"HEAD:{path}"]
        return subprocess.run(command, capture_output=True, check=True).stdout.decode()

    listed = read("chats/100K/").split()
    talks = []
    for number in _half(sorted((n.strip("/") for n in listed if n.strip("/").isdigit()), key=int), half):
        chat = json.loads(read(f"chats/100K/{number}/chat.json"))
        probes = json.loads(read(f"chats/100K/{number}/probing_questions/probing_questions.json"))
        by_id = {m["id"]: m for m in _walk(chat, _is_message)}
        messages = [by_id[i] for i in sorted(by_id)]
        place = {m["id"]: n for n, m in enumerate(messages)}
        bodies = tuple({"role": m["role"], "content": _without_tag(m["content"])} for m in messages)
        kinds = [k for k in probes if k not in _OTHER_KINDS] if kind is None else [kind]
        asked = (q for k in kinds for q in probes.get(k, ()))
        questions = (
            Question(q["question"], frozenset((0, place[i]) for i in _numbers(q.get("source_chat_ids")) if i in place))
            for q in asked
        )
        talks.append(Talk((("t", bodies),), tuple(q for q in questions if q.sources or kind is not None)))
    return talks


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and {"role", "content", "id"} <= value.keys()


def _without_tag(text: str) -> str:
    return re.sub(r"->->.*$", "", text).strip() or "."


def _numbers(value: object) -> Iterator[int]:
    yield from _walk(value, lambda o: isinstance(o, int))


def _walk(value: Any, is_wanted: Callable[[Any], bool]) -> Iterator[Any]:
    if is_wanted(value):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _walk(inner, is_wanted)


def recorded_talks(half: str) -> list[Talk]:
    """Recorded work of coding agents until a compaction; a question names its source messages."""
    folder = EVAL / "exam" / "questions"
    if not folder.is_dir():
        raise Skip(f"{folder} is not here")
    talks = []
    for name, number in _half(_CASES, half):
        bodies = tuple({k: v for k, v in m.items() if k in _KEYS} for m in _case(name, number))
        asked = json.loads((folder / f"{name}_{number}.json").read_text("utf-8"))
        questions = (Question(q["question"], frozenset((0, n) for n in q["where"])) for q in asked if q["where"])
        talks.append(Talk((("session", bodies),), tuple(questions)))
    return talks


_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name")


def _case(name: str, number: int) -> Sequence[dict[str, Any]]:
    """Return the messages before one compaction, counted over all sessions of a file."""
    kind = "cases" if name == "entire_cli" else "cases_cut"
    _, _, before, *_ = next(islice(recorded_cases(load_scorer(), name, kind), number, None))
    return list(before)


def _half(items: Iterable[_T], half: str) -> Sequence[_T]:
    listed = list(items)
    middle = len(listed) // 2
    return listed[:middle] if half == "first" else listed[middle:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("first", "second"), default="second")
    parser.add_argument("--locomo", type=Path, default=LOCOMO, help="locomo10.json")
    parser.add_argument("--beam", type=Path, default=BEAM, help="a clone of BEAM, or its git directory")
    options = parser.parse_args()
    print(render(TITLE, rows(options.half, options.locomo, options.beam)))


if __name__ == "__main__":
    main()
