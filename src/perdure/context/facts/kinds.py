"""What sort of thing a fact names, told from the fact alone."""

from __future__ import annotations

import re
from typing import Literal

from perdure.core.memo import Memo

FactKind = Literal["url", "path", "pair", "file", "number", "id", "code", "name", "dotted"]

# What ends a file name and not an attribute: `report.find` is no file.
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
    """What sort of thing a fact names; a "pair" is two words with a slash, a "code" mixes letters and digits."""
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
