"""`@path` in a message: text files go in whole up to a cap, images as images, folders as a list of names.

Only what a person typed may name a file: an issue, a page or a diff that is piped or pasted in must not pull files off
the disk.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_AT = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_MAX_TEXT_CHARS = 100_000
_MAX_IMAGE_BYTES = 5_000_000
_MAX_NAMES = 500
_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
_STRAY = ".,;:!?)]}'\""


@dataclass(frozen=True, slots=True)
class Attached:
    """A message with what was attached to it, and a line for each that says what it was."""

    message: str | Mapping[str, Any]
    told: tuple[str, ...] = ()
    # What was written, without what is attached; "" where the message is taken over from elsewhere.
    text: str = ""


def attach(text: str, folder: Path, *, pasted: Sequence[str] = ()) -> Attached:
    """Looks up every `@path` that does not come from a pasted part; one that names nothing stays ordinary text."""
    parts: list[dict[str, Any]] = []
    told: list[str] = []
    seen: set[Path] = set()
    foreign = Counter(_name(mark) for piece in pasted for mark in _AT.finditer(piece))
    for mark in _AT.finditer(text):
        if foreign[_name(mark)] > 0:
            foreign[_name(mark)] -= 1
            continue
        name = mark[1] or mark[2]
        path = _found(name, folder, is_quoted=mark[1] is not None)
        if path is None and (mark[1] or _looks_like_a_path(name)):
            told.append(f"there is no {name.rstrip(_STRAY)} here; it is sent as it was typed")
        if path is None or path in seen:
            continue
        seen.add(path)
        part, line = _part(path)
        parts += [part] if part is not None else []
        told.append(line)
    if not parts:
        return Attached(text, tuple(told), text)
    return Attached({"role": "user", "content": [{"type": "text", "text": text}, *parts]}, tuple(told), text)


def _name(mark: re.Match[str]) -> str:
    return str(mark[1] or mark[2]).rstrip(_STRAY)


def _looks_like_a_path(name: str) -> bool:
    """Whether somebody who wrote this meant a file, rather than a person or a decorator."""
    bare = name.rstrip(_STRAY)
    return "/" in bare or re.search(r"\w\.\w{1,5}$", bare) is not None


def _found(name: str, folder: Path, *, is_quoted: bool) -> Path | None:
    """The path that is meant: as written, else without the punctuation of the sentence around it."""
    for candidate in (name,) if is_quoted else (name, name.rstrip(_STRAY)):
        try:
            path = folder / Path(candidate).expanduser()
            if candidate and path.exists():
                return path.resolve()
        except (OSError, RuntimeError, ValueError):
            continue
    return None


def _part(path: Path) -> tuple[dict[str, Any] | None, str]:
    try:
        if path.is_dir():
            return _listing(path)
        if path.suffix.lower() in _IMAGES:
            return _image(path)
        return _text(path)
    except OSError as error:
        return None, f"{path.name} could not be read: {error.strerror}"


def _listing(path: Path) -> tuple[dict[str, Any], str]:
    names = sorted(p.name + ("/" if p.is_dir() else "") for p in path.iterdir())
    shown = names[:_MAX_NAMES]
    more = f"\n… and {len(names) - len(shown):,} more" if len(names) > len(shown) else ""
    text = f"Folder {path}:\n" + "\n".join(shown) + more
    return {"type": "text", "text": text}, f"attached the names in {path.name}/ ({len(names):,})"


def _image(path: Path) -> tuple[dict[str, Any] | None, str]:
    size = path.stat().st_size
    if size > _MAX_IMAGE_BYTES:
        return None, f"{path.name} is too large ({size / 1e6:,.1f} MB); images of up to 5 MB can be attached"
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    url = f"data:{_IMAGES[path.suffix.lower()]};base64,{data}"
    return {"type": "image_url", "image_url": {"url": url}}, f"attached {path.name} (image, {_size(size)})"


def _size(count: int) -> str:
    return f"{count / 1e3:,.0f} KB" if count >= 10_000 else f"{count:,} bytes"


def _text(path: Path) -> tuple[dict[str, Any] | None, str]:
    # Four bytes at most for a character, and one character more tells whether there is a rest.
    with path.open("rb") as file:
        raw = file.read(4 * (_MAX_TEXT_CHARS + 1))
    if b"\0" in raw:
        return None, f"{path.name} is no text and no image; it was not attached"
    text = raw.decode("utf-8", "replace")
    size = f"{len(text):,} characters"
    note = ""
    if len(text) > _MAX_TEXT_CHARS:
        text = text[:_MAX_TEXT_CHARS]
        size = f"its first {_MAX_TEXT_CHARS:,} characters of {path.stat().st_size:,} bytes"
        note = f"\n[… only {size} are shown; the whole file is at {path}]"
    return {"type": "text", "text": f"File {path}:\n{text}{note}"}, f"attached {path.name} ({size})"
