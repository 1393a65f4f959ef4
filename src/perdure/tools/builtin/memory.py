"""`memory`: persistent facts per user in MEMORY.md and USER.md, which take precedence over any handoff.

Notes are separated by `§` lines. A note written now enters the system prompt of the next session, so that the prompt
cache of this one stays valid.
"""

from __future__ import annotations

import hashlib
import re
import threading
from pathlib import Path
from typing import Annotated, Literal

from perdure.core.errors import ToolError
from perdure.core.ports import KeyValue, Memory, MemorySnapshot
from perdure.prompt_injection import screen
from perdure.redaction import redact
from perdure.tools.tool import Tool, ToolContext, tool_from_function
from perdure.tools.workspace import replace_file

Target = Literal["memory", "user"]
_FILES: dict[Target, str] = {"memory": "MEMORY.md", "user": "USER.md"}
_SEPARATOR = "\n§\n"


class FileMemory:
    """Memory in a folder: one sub-folder per user, private files, replaced atomically."""

    def __init__(self, folder: Path, *, memory_max_chars: int = 4_000, user_max_chars: int = 2_000) -> None:
        self._folder = folder
        self._limits: dict[Target, int] = {"memory": memory_max_chars, "user": user_max_chars}
        self._lock = threading.Lock()

    def snapshot(self, user_key: str) -> MemorySnapshot:
        return MemorySnapshot(self._read(user_key, "memory"), self._read(user_key, "user"))

    def write(self, user_key: str, target: Target, text: str) -> None:
        _check_length(text, target, self._limits[target])
        with self._lock:
            path = self._path(user_key, target)
            _make_private_folder(path.parent)
            replace_file(path, text.encode("utf-8", "replace"), mode=0o600, is_durable=True)

    def flush(self) -> None:
        """Do nothing: every write is durable when it returns."""

    def _path(self, user_key: str, target: Target) -> Path:
        return self._folder / safe_name(user_key) / _FILES[target] if user_key else self._folder / _FILES[target]

    def _read(self, user_key: str, target: Target) -> str:
        try:
            return self._path(user_key, target).read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise ToolError(f"{_FILES[target]} cannot be read: {error.strerror}") from None


class SharedMemory:
    """Memory in a shared key-value store, so that every machine reads the same notes.

    Until something is written, the local files are the default: they may be older than the shared database.
    """

    def __init__(
        self, values: KeyValue, files: FileMemory, *, memory_max_chars: int = 4_000, user_max_chars: int = 2_000
    ) -> None:
        self._values = values
        self._files = files
        self._limits: dict[Target, int] = {"memory": memory_max_chars, "user": user_max_chars}

    def snapshot(self, user_key: str) -> MemorySnapshot:
        files = self._files.snapshot(user_key)
        memory, user = self._values.get(_key(user_key, "memory")), self._values.get(_key(user_key, "user"))
        return MemorySnapshot(files.memory if memory is None else memory, files.user if user is None else user)

    def write(self, user_key: str, target: Target, text: str) -> None:
        _check_length(text, target, self._limits[target])
        self._values.set(_key(user_key, target), text)

    def flush(self) -> None:
        """Do nothing: every write is durable when it returns."""


class MemoryTool:
    """The `memory` tool: add, replace or remove a note."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def tool(self) -> Tool:
        return tool_from_function(self.memory, name="memory", toolset="memory", is_internal=True, is_ordered=True)

    def memory(
        self,
        context: ToolContext,
        action: Annotated[Literal["add", "replace", "remove", "read"], "what to do"],
        target: Annotated[Target, "user: who they are and how they like things; memory: everything else"] = "memory",
        text: Annotated[str, "the new note, one short fact"] = "",
        old: Annotated[str, "for replace and remove: a few words of the note to change"] = "",
    ) -> str:
        """Keeps short lasting facts across conversations. Only what will matter in weeks; never secrets."""
        snapshot = self._memory.snapshot(context.user.stored_key)
        if not snapshot.is_known:  # a write would replace the notes that could not be read
            raise ToolError("the memory cannot be read now; nothing was changed")
        notes = _split_notes(snapshot.memory if target == "memory" else snapshot.user)
        if action == "read":
            return "\n".join(f"- {n}" for n in notes) or f"{_FILES[target]} is empty"
        if action != "remove":
            text = _validate_note(text)
        index = None if action == "add" else _find_note(notes, old, _FILES[target])
        if action == "add":
            if text in notes:
                return "That is already noted."
            notes.append(text)
        elif index is not None:
            notes[index : index + 1] = [text] if action == "replace" else []
        self._memory.write(context.user.stored_key, target, _SEPARATOR.join(notes))
        size = "1 note" if len(notes) == 1 else f"{len(notes)} notes"
        return f"{_FILES[target]} now has {size}. It takes effect when the next session starts."


def safe_name(key: str) -> str:
    """Return a unique folder name for a key: the key itself if it is a plain name, else a slug with a hash."""
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,40}", key):
        return key
    readable = re.sub(r"[^a-z0-9_-]+", "-", key.lower())[:40].strip("-")
    return f"{readable or 'user'}.{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _key(user_key: str, target: Target) -> str:
    # The target has no space, so no two users share a key.
    return f"{target} {user_key}"


def _check_length(text: str, target: Target, limit: int) -> None:
    if len(text) > limit:
        raise ToolError(
            f"{_FILES[target]} may hold {limit:,} characters and this would make {len(text):,}; "
            "remove or shorten notes first"
        )


def _make_private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"{folder} cannot be created: {error.strerror}") from None


def _split_notes(text: str) -> list[str]:
    return [n.strip() for n in text.split("§") if n.strip()]


def _validate_note(text: str) -> str:
    text = text.replace("§", "").strip()
    if not text:
        raise ToolError("`text` is empty; give the note to store")
    if finding := screen(text):
        raise ToolError(f'this may not be noted: it {finding.why} ("{finding.excerpt}")')
    if redact(text) != text:
        raise ToolError("this seems to contain a secret, and memory is sent with every request; note its location")
    return text


def _find_note(notes: list[str], old: str, name: str) -> int:
    if not old.strip():
        raise ToolError("`old` is empty; give a few words of the note to change")
    matches = [i for i, n in enumerate(notes) if old.strip().lower() in n.lower()]
    if len(matches) == 1:
        return matches[0]
    listed = "\n".join(f"- {n}" for n in notes) or "(it is empty)"
    raise ToolError(f"`old` matches {len(matches)} notes of {name}; give words that match exactly one of:\n{listed}")
