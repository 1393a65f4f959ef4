"""Exact values of a conversation: paths, ids, names and numbers, ranked by how likely they are needed again.

`scan` extracts the values of a text and `kind_of` classifies them; `facts_in` has those of a message by where they
occur, cached per entry. `weigh` ranks them by where, how recently and how often they occurred: a logistic model over a
sum of evidence, its coefficients rounded from a fit over recorded sessions of several kinds of work. Facts used in
calls are used again, soon rather than late; a name in a short message counts more than one of two hundred in a listing;
the last few turns count most. The index of a handoff lists those that nothing else in view shows.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, Protocol

from perdure.context.redacted_entries import redact_entries, redact_entry, redact_message
from perdure.core.datastructures import Memo
from perdure.core.messages import Entry, Message

FactKind = Literal["url", "path", "pair", "file", "number", "id", "code", "name", "dotted"]

# File extensions, to tell file names from attributes: `report.find` is no file.
# fmt: off
_EXTENSIONS = frozenset((
    "py", "pyi", "ipynb", "js", "jsx", "mjs", "cjs", "ts", "tsx", "vue", "svelte", "java", "kt", "scala",
    "gradle", "c", "cc", "cpp", "cxx", "h", "hpp", "cs", "go", "mod", "sum", "rs", "rb", "php", "swift",
    "lua", "pl", "r", "jl", "sh", "bash", "zsh", "ps1", "bat", "sql", "md", "mdx", "rst", "txt", "tex", "org",
    "adoc", "json", "jsonl", "json5", "yaml", "yml", "toml", "ini", "cfg", "conf", "env", "lock",
    "properties", "xml", "html", "htm", "css", "scss", "less", "svg", "csv", "tsv", "parquet", "log", "db",
    "sqlite", "zip", "gz", "tar", "tgz", "png", "jpg", "jpeg", "gif", "webp", "mp3", "mp4", "wav", "pdf",
    "doc", "docx", "xls", "xlsx", "ppt", "pptx", "eml", "proto", "graphql", "tf", "diff", "patch",
))
# fmt: on
_HEX = re.compile(r"[0-9a-fA-F]{7,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NAME = re.compile(r"\w+")
_MIXED = re.compile(r"[a-z][A-Z]")

PLACES: frozenset[FactKind] = frozenset(("path", "file", "url"))


def kind_of(fact: str) -> FactKind:
    """Classify a fact; a "pair" is two words with a slash, a "code" mixes letters and digits."""
    return _KINDS[fact]


def _kind_of(fact: str) -> FactKind:
    if "://" in fact:
        return "url"
    end = fact.rpartition(".")[2].lower()
    if "/" in fact or "\\" in fact:
        is_path = fact[0] in "/~." or end in _EXTENSIONS or fact.count("/") > 1 or "_" in fact or "-" in fact
        return "path" if is_path else "pair"
    if fact.isdigit():
        return "number"
    if end in _EXTENSIONS and "." in fact:
        return "file"
    has_digit = any(map(str.isdigit, fact))
    if has_digit and _HEX.fullmatch(fact):
        return "id"
    if not _NAME.fullmatch(fact):
        return "code" if has_digit else "dotted"
    return "code" if has_digit and "_" not in fact and not _MIXED.search(fact) else "name"


_KINDS: Memo[str, FactKind] = Memo(_kind_of, max_bytes=8_000_000, bytes_per_char=4)


# Characters that never occur in a path, identifier or number separate pieces. Bytes, because `translate` on non-ASCII
# text is six times slower; non-ASCII characters are handled when a piece is classified.
FACT_DELIMITERS = b"\"'`<>()[]{},;:=|*#!?&%$^\\"
_TABLE = bytes.maketrans(FACT_DELIMITERS, b" " * len(FACT_DELIMITERS))

_URL = re.compile(r"https?://[^\s'\"<>)\]},\\`，。、；（）「」】]+")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\(?:[\w.@+ -]+\\)*[\w.@+-]+")
_RUN = re.compile(r"[\w.@+/~-]+")
_ASCII_RUN = re.compile(r"[\w.@+/~-]+", re.ASCII)
_PART = re.compile(r"[^\W_]+(?:_[^\W_]+)*")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_EXTENSION = re.compile(r"\w[\w-]*(?:\.[\w-]+)*\.[A-Za-z]\w{0,7}")
_CONTEXT_LINE = re.compile(r"(\.[A-Za-z]\w{0,7})-\d+(?:-.*)?$")
_MIXED_CASE = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")

_ARROW = "→".encode()
# A line break as a program prints it inside a quoted text: what follows is no part of the name behind it.
_ESCAPED_BREAKS = (b"\\n", b"\\t", b"\\r")
_LINE_NUMBER = re.compile(rb"\n *\d+\xe2\x86\x92")

LONGEST = 200
_SHORTEST = 4
_SHORTEST_NAME = 6
_MEMO_BYTES = 24_000_000
_NO_VALUES: frozenset[str] = frozenset()


def scan(text: str) -> frozenset[str]:
    """Extract the distinct facts of a text."""
    if not text:  # as that of most messages with calls
        return _NO_VALUES
    facts: set[str] = set()
    if "://" in text:
        facts.update(u.rstrip(".,:;") for u in _URL.findall(text))
    folders = _WINDOWS_PATH.findall(text) if ":\\" in text else []
    facts.update(folders)
    data = text.encode("utf-8", "replace")
    if _ARROW in data:
        # Line numbers of a file viewer are no facts; any other arrow is a separator.
        data = _LINE_NUMBER.sub(b" ", b"\n" + data).replace(_ARROW, b" ")
    if not folders and "\\" in text:
        for escaped in _ESCAPED_BREAKS:
            data = data.replace(escaped, b" ")
    # Most pieces are words without facts: known ones are skipped in one set operation.
    pieces = set(data.translate(_TABLE).split()) - _NO_FACTS
    return frozenset(facts.union(*map(_MEMO.__getitem__, pieces)))


def pieces_of(text: str) -> set[bytes]:
    """Return the distinct pieces of a text between separators, in which facts are looked for."""
    return set(text.encode("utf-8", "replace").translate(_TABLE).split())


def is_plain(piece: bytes) -> bool:
    """Whether a piece is a plain word, or too short to hold a fact."""
    return len(piece) < _SHORTEST or (piece.isalpha() and (piece[1:].islower() or piece.isupper()))


class _FactsMemo(Memo[bytes, tuple[str, ...]]):
    """Cache of the facts in each piece; pieces without facts are in a separate set."""

    def remember(self, key: bytes, value: tuple[str, ...]) -> None:
        if value:
            self[key] = value
        else:
            _NO_FACTS.add(key)

    def clear(self) -> None:
        super().clear()
        _NO_FACTS.clear()


_NO_FACTS: set[bytes] = set()


def _facts_in(raw: bytes) -> tuple[str, ...]:
    if is_plain(raw):
        return ()
    piece = raw.decode("utf-8", "replace")
    runs = [piece]
    if not piece.isascii():
        # A name adjacent to CJK words counts on its own, and with them as a path where it has a slash.
        whole = _RUN.findall(piece)
        runs = [r for w in whole for r in _ASCII_RUN.findall(w)] + [w for w in whole if "/" in w and not w.isascii()]
    return tuple({f for r in runs for f in _readings(r.rstrip(".-+@~/")) if _SHORTEST <= len(f) <= LONGEST})


_MEMO = _FactsMemo(_facts_in, max_bytes=_MEMO_BYTES, bytes_per_char=20)


def _readings(piece: str) -> list[str]:
    """Return the facts of a piece: the whole piece if it is a path, file name or id, else names and numbers in it."""
    if "/" in piece:
        # grep prints context lines as `path-12-text`; only the path counts.
        piece = _CONTEXT_LINE.sub(r"\1", piece)
        # Two leading slashes: the rest of a URL, or a comment.
        return [piece] if not piece.startswith("//") and any(map(str.isalnum, piece)) else []
    if _UUID.fullmatch(piece):
        return [piece]
    names = [p for p in _PART.findall(piece) if _is_name(p)]
    if not piece.isdigit() and (_EXTENSION.fullmatch(piece) or any(map(str.isdigit, piece))):
        return [piece, *names] if piece not in names else names
    return names


def _is_name(part: str) -> bool:
    if part.isdigit():
        # A bare year is not specific enough.
        return len(part) >= 4 and not (len(part) == 4 and part[:2] in ("19", "20"))
    if len(part) < _SHORTEST_NAME:
        return False
    return "_" in part or any(map(str.isdigit, part)) or _MIXED_CASE.search(part) is not None


# Splits `HTTPServer2_test.py` into HTTP, Server, 2, test and py, each with its separator.
_ATOM = re.compile(r"[^A-Za-z0-9]*(?:[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+)|[^A-Za-z0-9]+$")
_MARKS = re.compile(r"^[^A-Za-z0-9]+")
_parts_MIXED = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_MOST_ATOMS = 12
_MOST_PIECES = 1 << 13


def parts_in(text: str) -> set[str]:
    """Return possible facts that occur in a text as parts of longer names."""
    return set().union(*map(_PARTS.__getitem__, pieces_of(text)))


class _PartsMemo(dict[bytes, tuple[str, ...]]):
    """Bounded cache of the parts of each piece."""

    def __missing__(self, raw: bytes) -> tuple[str, ...]:
        if len(self) >= _MOST_PIECES:
            self.clear()
        parts = self[raw] = () if is_plain(raw) else _parts(raw.decode("utf-8", "replace"))
        return parts


_PARTS = _PartsMemo()


def _parts(piece: str) -> tuple[str, ...]:
    atoms = _ATOM.findall(piece)[-_MOST_ATOMS:]
    names: set[str] = set()
    for first, atom in enumerate(atoms):
        part = _MARKS.sub("", atom)
        for more in ("", *atoms[first + 1 :]):
            part += more
            if (len(part) >= _SHORTEST and not part.isalpha()) or _parts_MIXED.search(part):
                names.add(part)
    return tuple(names)


# Memo key of an entry's facts.
FACTS_KEY = "facts"


@dataclass(frozen=True, slots=True)
class CallTarget:
    """The target of a call: its path, URL or command."""

    call_id: str
    tool: str
    target: str


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """Facts of a message: in its text, in call arguments, in short arguments, and those that are a whole argument."""

    message: Message
    mentioned: frozenset[str]
    used: frozenset[str] = frozenset()
    brief: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    arguments: str = ""
    calls: tuple[CallTarget, ...] = ()

    @property
    def role(self) -> str:
        """The kind for handoffs and notes, whose role is borrowed; else the role."""
        return self.message.kind if self.message.kind in ("handoff", "note") else self.message.role


def facts_of(message: Message) -> MessageFacts:
    """Extract the facts of a message without its secrets. Pure, so the result can be cached."""
    return _facts_of(redact_message(message))


def facts_in(entry: Entry) -> MessageFacts:
    """Return the facts of an entry's message, cached on the entry."""
    facts: MessageFacts | None = entry.get_memo(FACTS_KEY)
    return facts or entry.memo(FACTS_KEY, lambda _: _facts_of(redact_entry(entry)))


class EntryFacts:
    """The facts of an entry, extracted when they are first read: of a long history few of them count."""

    __slots__ = ("_entry", "role")

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        message = entry.message
        self.role: str = message.kind if message.kind in ("handoff", "note") else message.role

    @property
    def message(self) -> Message:
        return redact_entry(self._entry)

    @property
    def mentioned(self) -> frozenset[str]:
        return facts_in(self._entry).mentioned

    @property
    def used(self) -> frozenset[str]:
        return facts_in(self._entry).used if self._entry.message.tool_calls else frozenset()

    @property
    def brief(self) -> frozenset[str]:
        return facts_in(self._entry).brief

    @property
    def whole(self) -> frozenset[str]:
        return facts_in(self._entry).whole

    @property
    def calls(self) -> tuple[CallTarget, ...]:
        if not self._entry.message.tool_calls:
            return ()
        facts: MessageFacts | None = self._entry.get_memo(FACTS_KEY)
        return _call_targets(redact_entry(self._entry)) if facts is None else facts.calls


def _call_targets(message: Message) -> tuple[CallTarget, ...]:
    made = (c.dispatched for c in message.tool_calls)
    return tuple(CallTarget(c.id, c.name, identifying_value(argument_values(c.arguments))) for c in made)


def read_facts(entries: Iterable[Entry]) -> None:
    """Extract and cache the facts of many entries, redacted in batches."""
    unread = [e for e in entries if e.get_memo(FACTS_KEY) is None]
    redact_entries(unread)
    for entry in unread:
        facts_in(entry)


def _facts_of(message: Message) -> MessageFacts:
    if not message.tool_calls:
        return MessageFacts(message, scan(message.text))
    made = [c.dispatched for c in message.tool_calls]
    values_by_call = [argument_values(c.arguments) for c in made]
    short = [v for values in values_by_call for v in values if len(v) <= LONGEST and "\n" not in v]
    arguments = "\n".join(v for values in values_by_call for v in values)
    used = scan(arguments)
    brief = scan("\n".join(short)) if len(short) < sum(map(len, values_by_call)) else used
    whole = used.intersection(v.strip().rstrip("/") for v in short)
    calls = tuple(CallTarget(c.id, c.name, identifying_value(v)) for c, v in zip(made, values_by_call, strict=True))
    return MessageFacts(message, scan(message.text), used, brief, whole, arguments, calls)


def argument_values(arguments: str) -> list[str]:
    """Return every value in JSON arguments as text, without keys; invalid JSON is one value."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return [arguments]
    values: list[str] = []
    waiting: list[Any] = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        elif value is not None:
            values.append(str(value))
    return values


def identifying_value(values: list[str]) -> str:
    """Return the value that identifies a call: a whole path or URL, else the first line of the first value."""
    for value in values:
        if len(value) <= LONGEST and len(value.split()) == 1 and kind_of(value) in PLACES:
            return value
    return next((v.strip().split("\n", 1)[0][:120] for v in values if v.strip()), "")


# Kinds of facts that identify the target of a call.
_POINTED_AT = PLACES | {"number", "id", "code"}
# Kinds that results are full of (line numbers, sizes, attributes): they hardly count unless mentioned.
_INCIDENTAL: frozenset[FactKind] = frozenset(("number", "code", "dotted"))

_PRIOR: dict[FactKind, float] = {
    "url": -0.6,
    "path": -0.3,
    "pair": 0.0,
    "file": 0.7,
    "number": -0.3,
    "id": -0.9,
    "code": -0.5,
    "name": 0.9,
    "dotted": -2.3,
}
_BASE = -5.3

# How many messages back facts are ranked.
FURTHEST_BACK = 3_000
# A source stops scanning back after this many occurrences.
_MOST_OCCURRENCES = 20_000
_MANY_MESSAGES = 1_500
_PASTED = 150


# Message positions with their facts, in conversation order.
Places = Sequence[tuple[int, frozenset[str]]]


class Weighable(Protocol):
    """A message to be ranked: its role, and its facts by where they occur (port)."""

    @property
    def role(self) -> str: ...
    @property
    def mentioned(self) -> frozenset[str]: ...
    @property
    def used(self) -> frozenset[str]: ...
    @property
    def brief(self) -> frozenset[str]: ...
    @property
    def whole(self) -> frozenset[str]: ...


@dataclass(slots=True)
class Sightings:
    """Occurrences of facts in one kind of source: last position, number of facts beside them, and count."""

    last: dict[str, int] = field(default_factory=dict)
    crowd: dict[int, int] = field(default_factory=dict)
    # Scanned messages with such facts, newest first; and the total number of occurrences.
    occurrences: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    spent: int = 0

    def add(self, position: int, facts: frozenset[str]) -> tuple[int, frozenset[str]]:
        self.spent += len(facts)
        self.occurrences.append(at := (position, facts))
        return at

    def settle(self) -> None:
        """Compute the indexes, after every message was added."""
        self.crowd = {position: len(facts) for position, facts in self.occurrences}
        self.last = {fact: position for position, facts in reversed(self.occurrences) for fact in facts}

    def count(self) -> Counter[str]:
        """Count the messages that hold each fact."""
        return Counter(chain.from_iterable(facts for _, facts in self.occurrences))


@dataclass(frozen=True, slots=True)
class Weights:
    """The probability that each fact is needed again, and the occurrences it is based on."""

    chance: dict[str, float]
    first: dict[str, int]
    whole: Sightings
    brief: Sightings
    calls: Sightings
    assistant: Sightings
    user: Sightings
    results: Sightings
    errors: Sightings
    decisions: Sightings


def weigh(entries: Sequence[Weighable], *, errors: Places = (), decisions: Places = ()) -> Weights:
    """Rank every fact of the entries, which are in conversation order.

    `errors` and `decisions` are the facts per entry that occur in an error or a decision.
    """
    sources = whole, brief, calls, assistant, user, results = tuple(Sightings() for _ in range(6))
    roles = tuple(Sightings(occurrences=[*reversed(occurrences)]) for occurrences in (errors, decisions))
    by_role = {"assistant": assistant, "handoff": assistant, "note": assistant, "user": user}
    everywhere: list[tuple[int, frozenset[str]]] = []
    # In a long history the newest messages have more than enough facts to choose from.
    most = _MOST_OCCURRENCES if len(entries) <= _MANY_MESSAGES else _MOST_OCCURRENCES // 4
    for position in range(len(entries) - 1, max(-1, len(entries) - 1 - FURTHEST_BACK), -1):
        entry = entries[position]
        source = by_role.get(entry.role, results)
        # Facts are read only where they still count.
        if (source.spent < most or source is user) and (mentioned := entry.mentioned):
            # A user message with hundreds of facts is mostly pasted text.
            if source is user and len(mentioned) >= _PASTED:
                source = results
            if source.spent < most:
                everywhere.append(source.add(position, mentioned))
        if (calls.spent < most or brief.spent < most or whole.spent < most) and (used := entry.used):
            for source, facts in ((whole, entry.whole), (brief, entry.brief), (calls, used)):
                if facts and source.spent < most:
                    everywhere.append(source.add(position, facts))
    for source in (*sources, *roles):
        source.settle()
    first = {fact: position for position, facts in everywhere for fact in facts}
    followed = {p: _share_used(entries[p].mentioned, p, calls.last) for p in results.crowd}
    return Weights(_chances(len(entries), sources, roles, followed), first, *sources, *roles)


def _share_used(listed: frozenset[str], position: int, used: Mapping[str, int]) -> float:
    """Return the share of a listing that was used afterwards: the rest is then likely to be used next."""
    paths = [f for f in listed if "/" in f or "." in f]
    used_later = sum(used.get(f, -1) > position for f in paths)
    return used_later / len(paths) if used_later > 1 else 0.0


# Per kind of source: base, recency, per doubling of the facts beside it, per doubling of its count.
_EVIDENCE = (
    (0.7, 0.8, 0.0, 0.0),  # a whole argument of a call: a path opened, a pattern searched for
    (-0.7, 0.4, 0.0, 0.6),  # in a short argument: part of a command
    (0.8, 1.2, -0.1, 0.0),  # anywhere in the arguments
    (-0.1, 1.1, 0.0, 0.0),  # in the assistant's text
    (0.4, 0.2, -0.05, 0.0),  # in the user's text
    (-0.5, 0.8, -0.08, 0.0),  # in a result
)
_POINTED = 2.0
# Minor coefficients: dropping any one changes retention on held-out sessions by less than half a point on average.
# The values are those that meet the targets of `benchmarks/bench_retention.py`.
# Mentioned, and not used in a call since.
_WAITING = 0.8
_FOLLOWED = 4.0
# A complete path in a result, which can be opened.
_UNOPENED = 0.5
# Occurs in an error, or in a decision.
_ROLES = (0.3, 0.3)


def _chances(
    total: int, sources: Sequence[Sightings], roles: Sequence[Sightings], followed: Mapping[int, float]
) -> dict[str, float]:
    near = [1 / (1 + (total - position) / 10) for position in range(total)]
    far = [1 / (1 + (total - position) / 50) for position in range(total)]
    logs = [0.0, *(math.log2(n) for n in range(1, 1025))]
    odds: dict[str, float] = {}
    latest: dict[str, int] = {}
    for source, (base, recency, crowding, repeating) in zip(sources, _EVIDENCE, strict=True):
        count = source.count() if repeating else {}
        at = {p: base + recency * far[p] + crowding * logs[min(n, 1024)] for p, n in source.crowd.items()}
        for fact, position in source.last.items():
            odds[fact] = odds.get(fact, 0.0) + at[position] + (repeating and repeating * logs[min(count[fact], 1024)])
            if position > latest.get(fact, -1):
                latest[fact] = position
    for source, weight in zip(roles, _ROLES, strict=True):
        for fact in source.last:
            if fact in odds:
                odds[fact] += weight
    brief, calls, results = sources[1].last, sources[2].last, sources[5].last
    used_or_mentioned = sources[2].last.keys() | sources[3].last.keys() | sources[4].last.keys()
    waiting = (sources[3].last.keys() | sources[4].last.keys()) - calls.keys()
    recent = [_BASE + 0.8 * n + 0.8 * f for n, f in zip(near, far, strict=True)]
    chances: dict[str, float] = {}
    for fact, sum_of_evidence in odds.items():
        kind = kind_of(fact)
        sum_of_evidence += recent[latest[fact]] + _PRIOR[kind]
        if fact in brief and kind in _POINTED_AT:
            sum_of_evidence += _POINTED
        elif kind in PLACES and fact not in calls and fact in results:
            sum_of_evidence += min(_POINTED, _FOLLOWED * followed[results[fact]]) + (
                _UNOPENED if kind == "path" else 0.0
            )
        elif kind in _INCIDENTAL and fact not in used_or_mentioned:
            sum_of_evidence -= _POINTED
        if fact in waiting:
            sum_of_evidence += _WAITING
        chances[fact] = 1 / (1 + math.exp(-sum_of_evidence))
    return chances
