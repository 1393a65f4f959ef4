"""The user's `config.yaml` as a document: its text, its data, the line of each key, and what is wrong with its YAML."""

from __future__ import annotations

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
    """A parsed file; `origins` says on which line each key stands."""

    path: Path
    # With plain line feeds; `has_crlf` remembers what the file really has.
    text: str
    data: dict[str, Any]
    origins: dict[str, str]
    has_crlf: bool = False


def read(path: Path) -> Document:
    """The file, or an empty document where there is none. Raises ConfigError with file, line and what to do."""
    try:
        # Bytes, so that line ends stay what they are.
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return Document(path, "", {}, {})
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check its permissions") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Document:
    """`text` as the document at `path`."""
    has_crlf = "\r\n" in text
    text = text.replace("\r\n", "\n")
    try:
        tree = YAML(typ="rt").load(text)
        if tree is None:
            tree = CommentedMap()
        if not isinstance(tree, CommentedMap):
            raise ConfigError(f"{path} should hold settings like `model: {{name: …}}`, not {_noun(tree)}")
        origins = {dotted(location): f"{path}, line {line}" for location, line in _lines(tree, ())}
        return Document(path, text, _plain(tree), origins, has_crlf)
    except YAMLError as error:
        raise ConfigError(_broken(error, text, path)) from None
    except (ValueError, RecursionError) as error:  # a date that no calendar has; a list that holds itself
        raise ConfigError(f"{path} cannot be read: {error}; mend it with `perdure config edit`") from None


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
            if key in (node.lc.data or {}):  # what a merge key brought in has no line here
                yield place, node.lc.key(key)[0] + 1
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
        if error.context and error.context_mark and error.context_mark.line + 1 != line:
            what += f" {error.context.splitlines()[0]} that begins on line {error.context_mark.line + 1}"
    lines = text.splitlines()
    if 0 < line <= len(lines) and "\t" in lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]:
        what = "the line is indented with a tab; YAML wants spaces"
    place = f"{path}, line {line}" if line else str(path)
    return f"{place}: {what}; mend it with `perdure config edit`"


def _noun(value: Any) -> str:
    return "a list" if isinstance(value, list) else f"{value!r}"
