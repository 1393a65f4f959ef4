"""Process chat input: long pastes, attached files, and the queue of events to display."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.vt100_parser import Vt100Parser

from perdure.core.files import private_opener
from perdure.core.messages import with_pastes
from perdure.tools.credential_paths import CREDENTIAL_PATTERN

if TYPE_CHECKING:
    from perdure.core.events import Event, ReasoningDelta, TextDelta

_FOLD_LINES = 12
_FOLD_CHARS = 2_000
_MAX_EARLIER = 500
_MARK = re.compile(r"\[pasted #(\d+): [^\]\n]*\]")
_MARK_CHARS = 80
_END = "\x1b[201~"


# What leaves, or helps, in a shell and in other chats; here it would be sent to the model, at the price of the window.
_BARE_COMMANDS = {"exit": "/quit", "quit": "/quit", ":q": "/quit", "help": "/help", "?": "/help"}


def as_command(line: str) -> str:
    """Return the command for a line that consists of one of these words; any other line unchanged."""
    return _BARE_COMMANDS.get(line.strip().lower(), line)


class Pastes:
    """Long pastes by number; a placeholder replaces each in the input line."""

    def __init__(self) -> None:
        self._pastes: list[str] = []
        # Short pastes, kept inline among typed text.
        self._inserted: list[str] = []
        # Pastes of earlier lines, of this chat and of others, which may come back from the history.
        self._earlier: deque[str] = deque(maxlen=_MAX_EARLIER)
        self._loaded: dict[str, None] = {}
        # Those of the line that was taken last.
        self.last: tuple[str, ...] = ()

    def fold(self, text: str) -> str:
        """Return the text to insert for a paste: the text itself, or a placeholder for a long one."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = len(text.splitlines())
        if lines <= _FOLD_LINES and len(text) <= _FOLD_CHARS:
            self._inserted.append(text)
            return text
        self._pastes.append(text)
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[pasted #{len(self._pastes)}: {size}]"

    def unfold(self, text: str) -> str:
        """Return a line with every placeholder replaced by its paste."""
        return _MARK.sub(lambda m: self._paste(m), text)

    def take(self, text: str, *, is_recalled: bool = False) -> tuple[str, ...]:
        """Return the pastes contained in a submitted line, and start the next line without any.

        A line recalled from the history may also contain pastes of earlier lines.
        """
        folded = (self._paste(mark) for mark in _MARK.finditer(text))
        inline = [*self._inserted, *((*self._earlier, *self._loaded) if is_recalled else ())]
        pasted = self.last = (*(paste for paste in dict.fromkeys(inline) if _is_part(paste, text)), *folded)
        self._earlier.extend(pasted)
        self._inserted.clear()
        return pasted

    def restore(self, pasted: Iterable[str]) -> None:
        """Count these pastes as parts of the next line again, after a submitted line was taken back."""
        self._inserted.extend(pasted)

    def mark_before(self, text: str) -> str:
        """Return the placeholder that a text ends with; "" if there is none."""
        marks = [mark for mark in _MARK.finditer(text[-_MARK_CHARS:]) if self._paste(mark) != mark[0]]
        return marks[-1][0] if marks and text.endswith(marks[-1][0]) else ""

    def missing_mark(self, text: str) -> str:
        """Return the first placeholder whose paste is unknown, as in a line of an earlier chat; "" if there is none."""
        return next((mark[0] for mark in _MARK.finditer(text) if self._paste(mark) == mark[0]), "")

    def load(self, pasted: Iterable[str]) -> None:
        """Load pastes that an earlier chat stored in the history, so that paths in them are not attached."""
        self._loaded.update(dict.fromkeys(paste for paste in pasted if "@" in paste))

    def _paste(self, mark: re.Match[str]) -> str:
        number = int(mark[1])
        return self._pastes[number - 1] if 0 < number <= len(self._pastes) else mark[0]


class PasteParser(Vt100Parser):
    """Parser of a bracketed paste, in time proportional to its length.

    The parser it extends looks through all that was pasted so far with every kilobyte that comes.
    """

    _pieces: list[str] | None = None
    _tail = ""

    def feed(self, data: str) -> None:
        if not self._in_bracketed_paste:
            super().feed(data)
            return
        self._pieces = [] if self._pieces is None else self._pieces
        self._pieces.append(data)
        recent = self._tail + data
        if _END not in recent:
            self._tail = recent[-len(_END) :]
            return
        whole, self._pieces, self._tail = "".join(self._pieces), None, ""
        super().feed(whole)


_HISTORY_CHARS = 20_000
_PASTED = "# pasted "
_ENTRY = re.compile(rf"^{_PASTED}(?P<pasted>.*)$|^(?P<lines>\+.*(?:\n\+.*)*)$", re.MULTILINE)


class UnfoldedHistory(FileHistory):
    """Input history that stores a line with its pastes; very long ones stay folded."""

    def __init__(self, path: Path, pastes: Pastes) -> None:
        super().__init__(str(path))
        self._pastes = pastes
        with contextlib.suppress(OSError), open(path, "ab", opener=private_opener):
            pass

    def store_string(self, string: str) -> None:
        whole = self._pastes.unfold(string)
        if "@" in whole:
            # A comment to the format, read back below: which paths were pasted, so that tomorrow they attach nothing.
            with open(self.filename, "a", encoding="utf-8", errors="replace") as file:
                file.write(f"\n{_PASTED}{json.dumps([paste for paste in self._pastes.last if '@' in paste])}")
        super().store_string(whole if len(whole) <= _HISTORY_CHARS else string)

    def load_history_strings(self) -> Iterable[str]:
        with contextlib.suppress(OSError):
            self._pastes.load(_stored_pastes(Path(os.fsdecode(self.filename)).read_text("utf-8", errors="replace")))
        return super().load_history_strings()


def _stored_pastes(history: str) -> Iterator[str]:
    """Yield the pasted parts of the lines in a history file; a line with a path and no record counts as pasted."""
    record: list[str] | None = None
    for entry in _ENTRY.finditer(history):
        if entry["pasted"] is not None:
            with contextlib.suppress(ValueError):
                record = [str(paste) for paste in json.loads(entry["pasted"])]
        elif entry["lines"] is not None:
            line = "\n".join(part[1:] for part in entry["lines"].split("\n")).strip()
            yield from [line] if record is None else record
            record = None


_AT = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_MAX_TEXT_CHARS = 100_000
_MAX_IMAGE_BYTES = 5_000_000
_MAX_NAMES = 500
_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
_CREDENTIAL_LINE = "{} holds credentials; it was not attached. Ask for it to be read, and approve that"
_STRAY = ".,;:!?)]}'\""


@dataclass(frozen=True, slots=True)
class Attached:
    """A message with its attachments, and one line per attachment."""

    message: str | Mapping[str, Any]
    lines: tuple[str, ...] = ()
    # What was written, without what is attached; "" where the message is taken over from elsewhere.
    text: str = ""

    def with_context(self, texts: Sequence[str]) -> Attached:
        """Return the message with more texts appended, each as a part of its own."""
        if not texts:
            return self
        parts = [{"type": "text", "text": text} for text in texts]
        if isinstance(self.message, str):
            content: list[Any] = [{"type": "text", "text": self.message}]
            return replace(self, message={"role": "user", "content": [*content, *parts]})
        content = self.message.get("content") or []
        content = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        return replace(self, message={**self.message, "content": [*content, *parts]})


def attach(text: str, folder: Path, *, pasted: Sequence[str] = ()) -> Attached:
    """Attach every file mentioned as `@path`, except in pasted parts; a mention without a file stays text."""
    parts: list[dict[str, Any]] = []
    lines: list[str] = []
    attached_paths: set[Path] = set()
    foreign = Counter(_name(mark) for piece in pasted for mark in _AT.finditer(piece))
    for mark in _AT.finditer(text):
        if foreign[_name(mark)] > 0:
            foreign[_name(mark)] -= 1
            continue
        if _overlaps_paste(mark, text, pasted):
            continue
        name = mark[1] or mark[2]
        path = _find_path(name, folder, is_quoted=mark[1] is not None)
        if path is None and (mark[1] or _looks_like_a_path(name)):
            lines.append(f"there is no {name.rstrip(_STRAY)} here; it is sent as it was typed")
        if path is None or path in attached_paths:
            continue
        attached_paths.add(path)
        part, line = _part(path) if not _is_credential(name, path) else (None, _CREDENTIAL_LINE.format(path.name))
        parts += [part] if part is not None else []
        lines.append(line)
    if not parts:
        return Attached(with_pastes(text, pasted), tuple(lines), text)
    message = {"role": "user", "content": [{"type": "text", "text": text}, *parts]}
    return Attached(with_pastes(message, pasted), tuple(lines), text)


def _is_credential(name: str, path: Path) -> bool:
    """Whether a file holds credentials, under the name that was typed or the one it links to."""
    typed = Path(name).expanduser().absolute().as_posix()
    return path.is_file() and any(CREDENTIAL_PATTERN.search(p) for p in (typed, path.as_posix()))


def _is_part(paste: str, text: str) -> bool:
    """Whether a line still holds a paste, or a path of it where the rest was edited."""
    return paste.strip() in text or any(mark[0] in text for mark in _AT.finditer(paste))


def _overlaps_paste(mark: re.Match[str], text: str, pasted: Sequence[str]) -> bool:
    """Whether a part of the path was pasted, after an `@` that was typed or pasted on its own."""
    for piece in (p.strip() for p in pasted):
        at = text.find(piece, max(0, mark.start() - len(piece) + 1)) if piece else -1
        while 0 <= at < mark.end():
            if at > mark.start() or at + len(piece) < mark.end():
                return True
            at = text.find(piece, at + 1)
    return False


def _name(mark: re.Match[str]) -> str:
    return str(mark[1] or mark[2]).rstrip(_STRAY)


def _looks_like_a_path(name: str) -> bool:
    """Whether an @name looks like a file rather than a mention or a decorator."""
    bare = name.rstrip(_STRAY)
    return "/" in bare or re.search(r"\w\.\w{1,5}$", bare) is not None


def _find_path(name: str, folder: Path, *, is_quoted: bool) -> Path | None:
    """Return the path that is meant: as written, else without the punctuation of the sentence around it."""
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
    listed = names[:_MAX_NAMES]
    more = f"\n… and {len(names) - len(listed):,} more" if len(names) > len(listed) else ""
    text = f"Folder {path}:\n" + "\n".join(listed) + more
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
    # At most four bytes per character; one more character shows whether the text continues.
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


Work = Callable[[], None]
# A key that comes meanwhile is read after at most about this long.
_SLICE_S = 0.008
# Text is taken up no oftener than this: what comes in between is joined.
_GATHER_S = 0.03


class EventInbox:
    """Passes events and work from any thread to the prompt's thread; `call` runs work soon, `later` after a delay."""

    def __init__(
        self, show: Callable[[Event], None], call: Callable[[Work], None], later: Callable[[float, Work], None]
    ) -> None:
        from perdure.core.event_queue import EventQueue

        self._show = show
        self._call = call
        self._later = later
        self._queue: EventQueue[Event | Work] = EventQueue()
        self._is_due = False
        self._took_text_at_s = float("-inf")

    def put(self, item: Event | Work) -> None:
        """Queue an event or a piece of work, from any thread; returns at once."""
        # In this order, and the flag cleared before anything is taken: no item is ever left behind.
        self._queue.put(item)
        if not self._is_due:
            self._is_due = True
            self._call(self._empty)

    def _empty(self) -> None:
        """Process a part of the queue in the prompt's thread, and schedule the rest."""
        self._is_due = False
        until_s = time.monotonic() + _SLICE_S
        while len(self._queue):
            if (wait_s := self._gathering_s()) > 0:
                self._is_due = True
                self._later(wait_s, self._empty)
                return
            item = self._next_item()
            if callable(item):
                item()
            else:
                self._show(item)
            if time.monotonic() > until_s and len(self._queue):
                self._is_due = True
                self._call(self._empty)
                return

    def _gathering_s(self) -> float:
        """Return how long to wait for more text deltas before drawing; 0 if other items are queued."""
        return self._took_text_at_s + _GATHER_S - time.monotonic() if self._queue.has_only_deltas else 0.0

    def _next_item(self) -> Event | Work:
        """Return the next item; consecutive text deltas are merged."""
        item = self._queue.pop()
        if _is_text(item):
            self._took_text_at_s = time.monotonic()
        return item


def _is_text(item: Event | Work) -> TypeGuard[TextDelta | ReasoningDelta]:
    from perdure.core.events import ReasoningDelta, TextDelta

    return isinstance(item, TextDelta | ReasoningDelta)
