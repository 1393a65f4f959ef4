"""The user's `config.yaml` as a document: its text, its data with line numbers, and what is wrong with its YAML."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from perdure.config.problems import dotted
from perdure.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file; `tree` keeps comments and places, and is empty where the file is empty or not there."""

    path: Path
    text: str
    tree: CommentedMap

    @property
    def data(self) -> dict[str, Any]:
        """Plain values; a section left empty (`compression:`) counts as not there."""
        return {str(key): _plain(value) for key, value in self.tree.items() if value is not None}

    def origins(self) -> dict[str, str]:
        """Where each key stands: `config.yaml, line 3`."""
        return {dotted(location): f"{self.path}, line {line}" for location, line in _lines(self.tree, ())}


def read(path: Path) -> Document:
    """The file, or an empty document where there is none. Raises ConfigError with file, line and what to do."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Document(path, "", CommentedMap())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check its permissions") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Document:
    """`text` as the document at `path`."""
    try:
        tree = yaml().load(text)
    except YAMLError as error:
        raise ConfigError(_broken(error, text, path)) from None
    except (ValueError, RecursionError) as error:  # e.g. a date that no calendar has
        raise ConfigError(f"{path} cannot be read: {error}; mend it with `perdure config edit`") from None
    if tree is None:
        tree = CommentedMap()
    if not isinstance(tree, CommentedMap):
        raise ConfigError(f"{path} should hold settings like `model: {{name: …}}`, not {_noun(tree)}")
    return Document(path, text, tree)


def dump(tree: Mapping[str, Any], style_of: str = "") -> str:
    """YAML text of `tree`, indented as `style_of` is."""
    writer = yaml()
    if style_of.strip():
        writer.map_indent, writer.sequence_indent, writer.sequence_dash_offset = _indents(style_of)
    stream = io.StringIO()
    writer.dump(tree, stream)
    return stream.getvalue()


def yaml() -> YAML:
    reader = YAML(typ="rt")
    reader.preserve_quotes = True
    # A long description of the user's is never folded.
    reader.width = 1_000_000
    return reader


def _indents(text: str) -> tuple[int, int, int]:
    """How the user indents: mappings, sequences, and the dash within a sequence."""
    mapping, sequence, dash = 2, 4, 2
    previous = ""
    for line in text.splitlines():
        body = line.lstrip(" ")
        if not body or body.startswith("#"):
            continue
        depth = len(line) - len(body)
        if previous.rstrip().endswith(":") and depth >= len(previous) - len(previous.lstrip(" ")):
            step = depth - (len(previous) - len(previous.lstrip(" ")))
            if body.startswith("- "):
                sequence, dash = step + len(body) - len(body[1:].lstrip(" ")), step
            elif step > 0:
                mapping = step
        previous = line
    return mapping, sequence, dash


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # ruamel's scalars remember their spelling; settings hold only what they are.
    for kind in (bool, str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def _lines(node: Any, location: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], int]]:
    if isinstance(node, CommentedMap):
        for key, value in node.items():
            place = (*location, str(key))
            yield place, (node.lc.key(key)[0] if key in (node.lc.data or {}) else 0) + 1
            yield from _lines(value, place)
    elif isinstance(node, CommentedSeq):
        for index, value in enumerate(node):
            place = (*location, index)
            yield place, node.lc.item(index)[0] + 1
            yield from _lines(value, place)


def _broken(error: YAMLError, text: str, path: Path) -> str:
    what, line = "it is not valid YAML", 0
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        what = (error.problem or error.context or what).splitlines()[0]
    lines = text.splitlines()
    if 0 < line <= len(lines) and "\t" in lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]:
        what = "the line is indented with a tab; YAML wants spaces"
    place = f"{path}, line {line}" if line else str(path)
    return f"{place}: {what}; mend it with `perdure config edit`"


def _noun(value: Any) -> str:
    return "a list" if isinstance(value, list) else f"{value!r}"
