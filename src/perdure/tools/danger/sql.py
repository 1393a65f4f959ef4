"""Statements for a database, read far enough to tell which of them delete."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE_COMMENT = re.compile(r"--[^\n]*|^[ \t]*#[^\n]*", re.M)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_QUOTED_OR_END = re.compile(rf"{_QUOTED.pattern}|;")
_DROPS = re.compile(
    r"\s*(?:drop\s+(?!procedure\s+if|function\s+if|trigger\s+if)(?:table|database|schema|keyspace|view|materialized|index|column"
    r"|user|role|owned|tablespace|type|sequence|extension|collection|policy|server|function|procedure|trigger)\b"
    r"|truncate\b|alter\s+table\b.*\bdrop\b|delete\s+from\b|update\b|vacuum\s+full\b.*x^|flush(?:all|db)\b|reset\s+master\b"
    r"|revoke\b|shutdown\b)",
    re.I | re.S,
)
_PREAMBLE = re.compile(r"^(?:begin|start\s+transaction|with\s+\w+\s+as\s*\([^)]*\))\s+", re.I)
_NO_FILTER = re.compile(r"\bwhere\b\s*(?:\(?\s*(?:1\s*=\s*1|true|1|''\s*=\s*'')\s*\)?)\s*\Z", re.I)
_DOCUMENTS = re.compile(
    r"\.dropDatabase\s*\(|\.drop\s*\(|\.(?:deleteMany|remove)\s*\(\s*(?:\{\s*\})?\s*\)|\.dropCollection|dropIndexes\s*\(|shutdownServer",
    re.I,
)


def deleting_statements(text: str) -> Iterator[str]:
    """The statements that drop, empty, or delete and change without saying which rows."""
    plain = " ".join(_LINE_COMMENT.sub(" ", _without_block_comments(text)).split())
    if found := _DOCUMENTS.search(plain):
        yield found.group()
    for statement in _statements(plain):
        if not _DROPS.match(statement):
            continue
        first = statement.split()[0].lower()
        if first in ("delete", "update") and not _is_unfiltered(statement, first):
            continue
        yield statement[:120]


def _is_unfiltered(statement: str, first: str) -> bool:
    if first == "update" and not re.search(r"\bset\b", statement, re.I):
        return False
    bare = _QUOTED.sub("''", statement).strip()
    return not re.search(r"\bwhere\b", bare, re.I) or bool(_NO_FILTER.search(bare))


def _without_block_comments(text: str) -> str:
    """Cut by hand: a pattern looks from every `/*` to the end for a `*/` that never comes."""
    kept, at = [], 0
    while (start := text.find("/*", at)) >= 0 and (end := text.find("*/", start + 2)) >= 0:
        kept.append(text[at:start])
        at = end + 2
    return " ".join([*kept, text[at:]])


def _statements(text: str) -> Iterator[str]:
    """Split at `;` outside quotes; a statement inside BEGIN … or EXPLAIN stays one."""
    cuts = [m.start() for m in _QUOTED_OR_END.finditer(text) if m.group() == ";"]
    for start, end in zip([0, *(c + 1 for c in cuts)], [*cuts, len(text)], strict=True):
        if statement := text[start:end].strip():
            yield _PREAMBLE.sub("", statement)
