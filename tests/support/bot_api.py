"""A stand-in for Telegram's Bot API on loopback: people write to the bot, and what it sends back can be read.

It keeps the service's own rules where they matter here: 4,096 characters a message, no empty text, no edit that changes
nothing, one reader of updates at a time, updates confirmed by offset, and "retry after" when told to be strict.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

TOKEN = "1234567:stand-in"
BOT = {"id": 1234567, "is_bot": True, "first_name": "Perdure", "username": "perdure_bot"}
MAX_TEXT = 4_096


class Refused(Exception):
    """An error as the service words it."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.answer = {"ok": False, "error_code": code, "description": description, "parameters": parameters}


class MemoryState(dict[str, Any]):
    """The values of an adapter, in memory."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value
        if value is None:
            del self[key]

    def items(self) -> Any:
        return dict(self)


@dataclass
class Sent:
    """A message of the bot's; `texts` holds it as sent and after each edit."""

    chat_id: int
    message_id: int
    texts: list[str]
    keyboard: list[list[dict[str, str]]] = field(default_factory=list)
    document: tuple[str, bytes] | None = None

    @property
    def text(self) -> str:
        return self.texts[-1]


class BotApi:
    """The service: `say` is a person writing, `sent` what the bot wrote."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ids = itertools.count(1)
        self._updates: list[dict[str, Any]] = []
        self._last_update: dict[str, Any] = {}
        self._files: dict[str, bytes] = {}
        self._reader = 0
        self.sent: list[Sent] = []
        self.actions: list[tuple[int, str]] = []
        self.commands: list[dict[str, str]] = []
        self.calls: list[str] = []
        # While it is not set, downloads make no progress.
        self.serves_files = threading.Event()
        self.serves_files.set()
        # Methods that answer "too many requests" this many more times.
        self.busy: dict[str, int] = {}
        # Decides per call whether the service refuses it.
        self.refuse: Callable[[str, dict[str, Any]], Refused | None] = lambda method, given: None

    # -- what people do ----------------------------------------------------------------------------------------------

    def say(self, text: str, *, user: int = 7, chat: int | None = None, **more: Any) -> int:
        """A text message; returns its id."""
        return self._message(user, chat, text=text, **more)

    def send_photo(self, data: bytes, *, user: int = 7, caption: str = "") -> int:
        file_id = self._keep(data)
        photo = [{"file_id": file_id, "file_unique_id": file_id, "width": 9, "height": 9, "file_size": len(data)}]
        return self._message(user, None, photo=photo, caption=caption)

    def send_file(self, name: str, data: bytes, *, user: int = 7, caption: str = "", mime: str = "text/plain") -> int:
        file_id = self._keep(data)
        document = {"file_id": file_id, "file_unique_id": file_id, "file_name": name, "mime_type": mime}
        return self._message(user, None, document={**document, "file_size": len(data)}, caption=caption)

    def press(self, message: Sent, label: str, *, user: int = 7) -> None:
        """Presses a button under one of the bot's messages."""
        button = next(b for row in message.keyboard for b in row if b["text"] == label)
        query = {
            "id": str(next(self._ids)),
            "from": _person(user),
            "chat_instance": "1",
            "data": button["callback_data"],
        }
        shown = _shown(message.chat_id, message.message_id, message.text)
        shown["reply_markup"] = {"inline_keyboard": message.keyboard}
        self._push({"callback_query": {**query, "message": shown}})

    def push_update(self, **content: Any) -> None:
        """An update of any content, also one the service would never send."""
        self._push(content)

    def repeat_last_update(self) -> None:
        """The same update once more, as after a lost confirmation."""
        with self._changed:
            self._updates.append(dict(self._last_update, update_id=next(self._ids)))
            self._changed.notify_all()

    def until(self, is_so: Callable[[BotApi], Any], *, timeout_s: float = 20.0) -> Any:
        """Waits until something holds and returns it."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not (found := is_so(self)):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"did not come about; the bot has sent {[s.texts for s in self.sent]}")
                self._changed.wait(min(left, 0.2))
            return found

    @property
    def has_unconfirmed_updates(self) -> bool:
        """Whether a bot that asked now would receive anything."""
        with self._changed:
            return bool(self._updates)

    # -- what the bot calls ------------------------------------------------------------------------------------------

    def answer(self, method: str, given: dict[str, Any], files: dict[str, tuple[str, bytes]]) -> Any:
        with self._changed:
            self.calls.append(method)
            if self.busy.get(method, 0) > 0:
                self.busy[method] -= 1
                raise Refused(429, "Too Many Requests: retry after 1", retry_after=1)
            if (refused := self.refuse(method, given)) is not None:
                raise refused
            return self._answer(method, given, files)

    def _answer(self, method: str, given: dict[str, Any], files: dict[str, tuple[str, bytes]]) -> Any:
        match method:
            case "getMe":
                return BOT
            case "deleteWebhook" | "answerCallbackQuery":
                return True
            case "setMyCommands":
                self.commands = given["commands"]
                return True
            case "getUpdates":
                return self._get_updates(int(given.get("offset", 0)), float(given.get("timeout", 0)))
            case "sendChatAction":
                self.actions.append((int(given["chat_id"]), given["action"]))
                return True
            case "sendMessage":
                return self._send(given, _checked(given.get("text", "")))
            case "sendDocument":
                return self._send(given, given.get("caption", ""), next(iter(files.values())))
            case "editMessageText":
                return self._edit(given)
            case "editMessageReplyMarkup":
                return self._edit({**given, "text": None})
            case "getFile":
                return {"file_id": given["file_id"], "file_unique_id": given["file_id"], "file_path": given["file_id"]}
        raise Refused(404, f"Not Found: method {method}")

    def file(self, path: str) -> bytes:
        self.serves_files.wait(30)
        return self._files[path]

    def _get_updates(self, offset: int, timeout_s: float) -> list[dict[str, Any]]:
        # A newer reader ends an older one, as the service does.
        self._reader += 1
        mine = self._reader
        self._changed.notify_all()
        self._updates = [u for u in self._updates if u["update_id"] >= offset]
        deadline = time.monotonic() + min(timeout_s, 1.0)
        while not self._updates and self._reader == mine and (left := deadline - time.monotonic()) > 0:
            self._changed.wait(left)
        if self._reader != mine:
            raise Refused(409, "Conflict: terminated by other getUpdates request")
        return list(self._updates)

    def _send(self, given: dict[str, Any], text: str, document: tuple[str, bytes] | None = None) -> dict[str, Any]:
        keyboard = given.get("reply_markup", {}).get("inline_keyboard", [])
        message = Sent(int(given["chat_id"]), next(self._ids), [text], keyboard, document)
        self.sent.append(message)
        self._changed.notify_all()
        return _shown(message.chat_id, message.message_id, text)

    def _edit(self, given: dict[str, Any]) -> dict[str, Any]:
        wanted = (int(given["chat_id"]), int(given["message_id"]))
        message = next((s for s in self.sent if (s.chat_id, s.message_id) == wanted), None)
        if message is None:
            raise Refused(400, "Bad Request: message to edit not found")
        text = message.text if given["text"] is None else _checked(given["text"])
        keyboard = given.get("reply_markup", {}).get("inline_keyboard", [])
        if text == message.text and keyboard == message.keyboard:
            raise Refused(400, "Bad Request: message is not modified")
        message.texts.append(text)
        message.keyboard = keyboard
        self._changed.notify_all()
        return _shown(message.chat_id, message.message_id, text)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _message(self, user: int, chat: int | None, **content: Any) -> int:
        message_id = next(self._ids)
        where = {"id": user, "type": "private"} if chat is None else {"id": chat, "type": "group", "title": "Group"}
        text = content.get("text") or ""
        if text.startswith("/"):
            command = text.split()[0]
            content["entities"] = [{"type": "bot_command", "offset": 0, "length": len(command)}]
        body = {"message_id": message_id, "date": int(time.time()), "chat": where, "from": _person(user), **content}
        self._push({"message": body})
        return message_id

    def _push(self, update: dict[str, Any]) -> None:
        with self._changed:
            self._last_update = {"update_id": next(self._ids), **update}
            self._updates.append(self._last_update)
            self._changed.notify_all()

    def _keep(self, data: bytes) -> str:
        file_id = f"f{next(self._ids)}"
        self._files[file_id] = data
        return file_id


def _person(user: int) -> dict[str, Any]:
    return {"id": user, "is_bot": False, "first_name": f"Person {user}"}


def _shown(chat_id: int, message_id: int, text: str) -> dict[str, Any]:
    chat = {"id": chat_id, "type": "private" if chat_id > 0 else "group"}
    return {"message_id": message_id, "date": int(time.time()), "chat": chat, "from": BOT, "text": text}


def _checked(text: str) -> str:
    if not text.strip():
        raise Refused(400, "Bad Request: message text is empty")
    if len(text.encode("utf-16-le")) // 2 > MAX_TEXT:
        raise Refused(400, "Bad Request: message is too long")
    return text


@contextmanager
def bot_api() -> Iterator[tuple[BotApi, str]]:
    """The stand-in and its address."""
    api = BotApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            given, files = _read_form(self.headers.get("content-type", ""), raw)
            token, _, method = self.path.removeprefix("/bot").partition("/")
            try:
                if token != TOKEN:
                    raise Refused(401, "Unauthorized")
                self._reply(200, {"ok": True, "result": api.answer(method, given, files)})
            except Refused as refused:
                self._reply(refused.answer["error_code"], refused.answer)

        def do_GET(self) -> None:
            self._send(200, api.file(self.path.rpartition("/")[2]))

        def _reply(self, status: int, answer: Any) -> None:
            self._send(status, json.dumps(answer).encode())

        def _send(self, status: int, body: bytes) -> None:
            with suppress(OSError):  # the bot hung up, as it does when it stops
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield api, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _read_form(content_type: str, raw: bytes) -> tuple[dict[str, Any], dict[str, tuple[str, bytes]]]:
    """Fields (JSON where they are JSON) and files of a posted form."""
    if not content_type.startswith("multipart/"):
        return {k: _value(v) for k, v in parse_qsl(raw.decode(), keep_blank_values=True)}, {}
    form = BytesParser().parsebytes(f"content-type: {content_type}\r\n\r\n".encode() + raw)
    fields, files = {}, {}
    for part in form.get_payload():
        name = str(part.get_param("name", header="content-disposition"))
        data = part.get_payload(decode=True)
        if part.get_filename():
            files[name] = (part.get_filename(), data)
        else:
            fields[name] = _value(data.decode())
    return fields, files


def _value(text: str) -> Any:
    if text[:1] in "[{":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
