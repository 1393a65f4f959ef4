"""`memory`: lasting facts in MEMORY.md and USER.md, per user, short on purpose, and authoritative over any handoff.

Notes stand between `§` lines. What is written now enters the system prompt when the next session starts, so that the
cached prefix of this one stays whole.
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
_BREAK = "\n§\n"


class FileMemory:
    """The Memory port over a folder: one sub-folder per user, files for their owner alone, replaced whole."""

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
            _private_folder(path.parent)
            replace_file(path, text.encode("utf-8", "replace"), mode=0o600, is_durable=True)

    def flush(self) -> None:
        """Every write is on disk when it returns, so there is nothing left to do."""

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
    """The Memory port over values every machine reads: what was noted on one is known on all.

    Files of this machine count until something is written: they may be older than the shared database.
    """

    def __init__(
        self, kept: KeyValue, files: FileMemory, *, memory_max_chars: int = 4_000, user_max_chars: int = 2_000
    ) -> None:
        self._kept = kept
        self._files = files
        self._limits: dict[Target, int] = {"memory": memory_max_chars, "user": user_max_chars}

    def snapshot(self, user_key: str) -> MemorySnapshot:
        files = self._files.snapshot(user_key)
        memory, user = self._kept.get(_key(user_key, "memory")), self._kept.get(_key(user_key, "user"))
        return MemorySnapshot(files.memory if memory is None else memory, files.user if user is None else user)

    def write(self, user_key: str, target: Target, text: str) -> None:
        _check_length(text, target, self._limits[target])
        self._kept.set(_key(user_key, target), text)

    def flush(self) -> None:
        """Every write is durable when it returns, so there is nothing left to do."""


class MemoryTool:
    """What the model does with memory: add, replace, remove one note."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def tool(self) -> Tool:
        return tool_from_function(self.memory, name="memory", toolset="memory")

    def memory(
        self,
        context: ToolContext,
        action: Annotated[Literal["add", "replace", "remove", "read"], "what to do"],
        target: Annotated[Target, "user: who they are and how they like things; memory: everything else"] = "memory",
        text: Annotated[str, "the new note, one short fact"] = "",
        old: Annotated[str, "for replace and remove: a few words of the note that is meant"] = "",
    ) -> str:
        """Keeps short lasting facts across conversations. Only what will matter in weeks; never secrets."""
        notes = _notes(getattr(self._memory.snapshot(context.user_key), target))
        if action == "read":
            return "\n".join(f"- {n}" for n in notes) or f"{_FILES[target]} is empty"
        if action != "remove":
            text = _acceptable(text)
        at = None if action == "add" else _find(notes, old, _FILES[target])
        if action == "add":
            if text in notes:
                return "That is noted already."
            notes.append(text)
        elif at is not None:
            notes[at : at + 1] = [text] if action == "replace" else []
        self._memory.write(context.user_key, target, _BREAK.join(notes))
        return f"{_FILES[target]} now has {len(notes)} notes. It takes effect when the next session starts."


def safe_name(key: str) -> str:
    """A folder name for any key: readable where it is plain, and never two keys in one folder."""
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,40}", key):
        return key
    readable = re.sub(r"[^a-z0-9_-]+", "-", key.lower())[:40].strip("-")
    return f"{readable or 'user'}.{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _key(user_key: str, target: Target) -> str:
    # The target first: it holds no space, so that no two users share a key.
    return f"{target} {user_key}"


def _check_length(text: str, target: Target, limit: int) -> None:
    if len(text) > limit:
        raise ToolError(
            f"{_FILES[target]} may hold {limit:,} characters and this would make {len(text):,}; "
            "remove or shorten notes first"
        )


def _private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"{folder} cannot be made: {error.strerror}") from None


def _notes(text: str) -> list[str]:
    return [n.strip() for n in text.split("§") if n.strip()]


def _acceptable(text: str) -> str:
    text = text.replace("§", "").strip()
    if not text:
        raise ToolError("`text` is empty; say what to note")
    if finding := screen(text):
        raise ToolError(f'this may not be noted: it {finding.why} ("{finding.excerpt}")')
    if redact(text) != text:
        raise ToolError("this seems to hold a secret, and memory goes out with every request; note where it is kept")
    return text


def _find(notes: list[str], old: str, name: str) -> int:
    if not old.strip():
        raise ToolError("`old` is empty; give a few words of the note that is meant")
    found = [i for i, n in enumerate(notes) if old.strip().lower() in n.lower()]
    if len(found) == 1:
        return found[0]
    listed = "\n".join(f"- {n}" for n in notes) or "(it is empty)"
    raise ToolError(f"`old` fits {len(found)} notes of {name}; give words that fit exactly one of:\n{listed}")
