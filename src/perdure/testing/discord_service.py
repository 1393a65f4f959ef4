"""A simulated Discord on loopback, to test and try a bot without an account.

It serves the part of Discord's REST API and gateway connection that a chat bot uses, and keeps the rules that matter:
2,000 characters a message, no empty text, a nonce that makes a message unique, rate limits with `retry_after`.

    python -m perdure.testing.discord_service --port 8091
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import mimetypes
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

TOKEN = "stand-in.bot.token"
BOT_ID, USER_ID, GUILD_ID, CHANNEL_ID = 1_001, 7, 2_001, 3_001
MAX_TEXT = 2_000
_TIME = "2026-01-01T00:00:00.000000+00:00"
_FIRST_ID = 1_400_000_000_000_000_000
_DISPATCH, _HEARTBEAT, _IDENTIFY, _RESUME, _HELLO, _ACK = 0, 1, 2, 6, 10, 11
_PRIVATE, _THREAD = 1, 11
_MESSAGE_CONTENT = 1 << 15
T = TypeVar("T")


@dataclass
class ServiceMessage:
    """A message in a channel; `texts` has it as sent and after each edit."""

    id: int
    channel_id: int
    author_id: int
    texts: list[str]
    buttons: list[tuple[str, str]] = field(default_factory=list)
    files: list[tuple[str, bytes]] = field(default_factory=list)
    nonce: str = ""
    mentions_bot: bool = False
    is_bot: bool = False
    is_private: bool = True

    @property
    def text(self) -> str:
        return self.texts[-1]


class DiscordRefusal(Exception):
    """Raised inside the service to answer a request with an error, in Discord's format."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"code": code, "message": message}


class DiscordService:
    """A simulated Discord: `say` writes as a user, `sent` has what the bot wrote. Methods are safe from any thread."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._changed = threading.Condition()
        self._ids = itertools.count(_FIRST_ID)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="discord-service", daemon=True)
        self._runner: web.AppRunner | None = None
        self._sockets: set[web.WebSocketResponse] = set()
        self._sequence = itertools.count(1)
        self._files: dict[int, bytes] = {}
        self._last_event: tuple[str, dict[str, Any]] | None = None
        self.messages: list[ServiceMessage] = []
        # Threads by id, each with the id of its channel.
        self.threads: dict[int, int] = {}
        self.calls: list[str] = []
        self.notices: list[str] = []
        self.connections = 0
        # Whether the owner of the bot has turned on the intent to read messages.
        self.allows_message_content = True
        # So many more requests are answered with "too many requests".
        self.busy = 0
        # Decides per request whether the service refuses it.
        self.refuse: Callable[[str, str], DiscordRefusal | None] = lambda method, path: None
        # Called with every message of the bot, new or edited.
        self.on_message: Callable[[ServiceMessage], None] = lambda message: None

    def __enter__(self) -> DiscordService:
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def sent(self) -> list[ServiceMessage]:
        """The messages that the bot sent, in order."""
        with self._changed:
            return [message for message in self.messages if message.is_bot]

    # -- what users do -------------------------------------------------------------------------------------------------

    def say(
        self,
        text: str,
        *,
        user: int = USER_ID,
        channel: int | None = None,
        mentions: bool = False,
        files: list[tuple[str, str, bytes]] | None = None,
        is_bot: bool = False,
    ) -> int:
        """Write a message, in a direct conversation unless a channel is named; return its id."""
        with self._changed:
            message_id = next(self._ids)
            content = f"<@{BOT_ID}> {text}" if mentions else text
            message = ServiceMessage(message_id, channel or 9_000 + user, user, [content], is_bot=False)
            message.mentions_bot, message.is_private = mentions, channel is None
            data = self._payload(message)
            data["author"]["bot"] = is_bot
            data["attachments"] = [self._attachment(*file) for file in files or ()]
            self.messages.append(message)
        self._dispatch("MESSAGE_CREATE", data)
        return message_id

    def press(self, message: ServiceMessage, label: str, *, user: int = USER_ID) -> None:
        """Press a button under a message of the bot."""
        custom_id = next(data for name, data in message.buttons if name == label)
        data = {
            "id": str(next(self._ids)),
            "application_id": str(BOT_ID),
            "type": 3,
            "token": "interaction-token",
            "version": 1,
            "attachment_size_limit": 10_000_000,
            "entitlements": [],
            "channel_id": str(message.channel_id),
            "channel": {"id": str(message.channel_id), "type": _PRIVATE, "recipients": [_user(user)]},
            "message": self._payload(message),
            "data": {"component_type": 2, "custom_id": custom_id},
            "user": _user(user),
        }
        self._dispatch("INTERACTION_CREATE", data)

    def repeat_last_event(self) -> None:
        """Dispatch the last event again, as after a resumed connection."""
        if self._last_event is not None:
            self._dispatch(*self._last_event)

    def drop_connections(self) -> None:
        """Close every gateway connection, as in an outage."""
        self._call(self._drop())

    def until(self, condition: Callable[[DiscordService], T], *, timeout_s: float = 30.0) -> T:
        """Wait until a condition holds and return its value. Raises AssertionError after the timeout."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(condition(self)), timeout_s):
                raise AssertionError(f"did not come about; the bot has sent {[m.texts for m in self.sent]}")
            return condition(self)

    # -- the REST API --------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/api/v10")
        if path == "/gateway":
            return await self._serve_gateway(request)
        if path.startswith("/files/"):
            return web.Response(body=self._files[int(path.rpartition("/")[2])])
        with self._changed:
            self.calls.append(f"{request.method} {path}")
            is_busy, self.busy = self.busy > 0, max(0, self.busy - 1)
        if is_busy:
            body = {"message": "You are being rate limited.", "retry_after": 0.05, "global": False}
            return _json_response(body, status=429, headers={"Via": "1.1 stand-in"})
        try:
            if request.headers.get("Authorization") != f"Bot {TOKEN}" and not path.startswith("/interactions/"):
                raise DiscordRefusal(401, 0, "401: Unauthorized")
            if (refusal := self.refuse(request.method, path)) is not None:
                raise refusal
            body, files = await _read_body(request)
            answer = self._answer(request, path.strip("/").split("/"), body, files)
        except DiscordRefusal as refused:
            return _json_response(refused.body, status=refused.status)
        return web.Response(status=204) if answer is None else _json_response(answer)

    def _answer(
        self, request: web.Request, path: list[str], body: dict[str, Any], files: list[tuple[str, bytes]]
    ) -> Any:
        with self._changed:
            match request.method, path:
                case "GET", ["users", "@me"]:
                    return {**_user(BOT_ID), "bot": True}
                case "GET", ["oauth2", "applications", "@me"]:
                    return _application()
                case "GET", ["gateway", "bot"]:
                    limit = {"total": 1_000, "remaining": 999, "reset_after": 0, "max_concurrency": 1}
                    gateway = f"ws://127.0.0.1:{self._port}/gateway"
                    return {"url": gateway, "shards": 1, "session_start_limit": limit}
                case "GET", ["channels", channel]:
                    return self._channel(int(channel))
                case "GET", ["channels", channel, "messages"]:
                    return self._history(int(channel), request)
                case "POST", ["channels", channel, "messages"]:
                    return self._send(int(channel), body, files)
                case "PATCH", ["channels", _, "messages", message_id]:
                    return self._edit(int(message_id), body)
                case "POST", ["channels", channel, "messages", message_id, "threads"]:
                    return self._open_thread(int(channel), int(message_id), body)
                case "POST", ["channels", _, "typing"]:
                    return None
                case "POST", ["interactions", interaction_id, _, "callback"]:
                    self.notices.append(str((body.get("data") or {}).get("content", "")))
                    self._changed.notify_all()
                    wants_response = request.query.get("with_response") in ("1", "true")
                    return {"interaction": {"id": interaction_id, "type": 3}} if wants_response else None
                case _:
                    raise DiscordRefusal(404, 0, "404: Not Found")

    def _send(self, channel_id: int, body: dict[str, Any], files: list[tuple[str, bytes]]) -> dict[str, Any]:
        nonce = str(body.get("nonce") or "")
        earlier = next((m for m in self.messages if m.is_bot and nonce and m.nonce == nonce), None)
        if earlier is not None and body.get("enforce_nonce"):
            return self._payload(earlier)
        text = _valid_text(body.get("content") or "", has_files=bool(files))
        message = ServiceMessage(next(self._ids), channel_id, BOT_ID, [text], _buttons(body), files, nonce)
        message.is_bot = True
        message.is_private = channel_id not in self.threads and channel_id != CHANNEL_ID
        self.messages.append(message)
        return self._announce(message)

    def _edit(self, message_id: int, body: dict[str, Any]) -> dict[str, Any]:
        message = next((m for m in self.messages if m.id == message_id and m.is_bot), None)
        if message is None:
            raise DiscordRefusal(404, 10_008, "Unknown Message")
        message.texts.append(_valid_text(body.get("content") or "", has_files=False))
        message.buttons = _buttons(body) if "components" in body else message.buttons
        return self._announce(message)

    def _announce(self, message: ServiceMessage) -> dict[str, Any]:
        self._changed.notify_all()
        self.on_message(message)
        return self._payload(message)

    def _open_thread(self, channel_id: int, message_id: int, body: dict[str, Any]) -> dict[str, Any]:
        if message_id in self.threads:
            raise DiscordRefusal(400, 160_004, "A thread has already been created for this message")
        self.threads[message_id] = channel_id
        thread = self._thread_payload(message_id, str(body.get("name") or "thread"))
        self._changed.notify_all()
        self._loop.create_task(self._broadcast("THREAD_CREATE", thread))
        return thread

    def _history(self, channel_id: int, request: web.Request) -> list[dict[str, Any]]:
        after, limit = int(request.query.get("after", "0")), int(request.query.get("limit", "50"))
        rows = [m for m in self.messages if m.channel_id == channel_id and m.id > after]
        return [self._payload(message) for message in rows[:limit]][::-1]

    def _channel(self, channel_id: int) -> dict[str, Any]:
        if channel_id in self.threads:
            return self._thread_payload(channel_id, "thread")
        if channel_id == CHANNEL_ID:
            return _text_channel()
        return {"id": str(channel_id), "type": _PRIVATE, "recipients": [_user(channel_id - 9_000)]}

    # -- the gateway connection ----------------------------------------------------------------------------------------

    async def _serve_gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        await socket.send_json({"op": _HELLO, "d": {"heartbeat_interval": 41_250}})
        try:
            async for frame in socket:
                if frame.type is not aiohttp.WSMsgType.TEXT:
                    continue
                message = json.loads(frame.data)
                match message["op"]:
                    case 1:
                        await socket.send_json({"op": _ACK})
                    case 2 if message["d"]["intents"] & _MESSAGE_CONTENT and not self.allows_message_content:
                        await socket.close(code=4_014, message=b"Disallowed intent(s).")
                    case 2:
                        await self._welcome(socket)
                    case 6:
                        self._join(socket)
                        await socket.send_json(self._event("RESUMED", {}))
        finally:
            self._sockets.discard(socket)
        return socket

    async def _welcome(self, socket: web.WebSocketResponse) -> None:
        ready = {
            "v": 10,
            "user": {**_user(BOT_ID), "bot": True},
            "guilds": [{"id": str(GUILD_ID), "unavailable": True}],
            "session_id": "stand-in",
            "resume_gateway_url": f"ws://127.0.0.1:{self._port}/gateway",
            "application": {"id": str(BOT_ID), "flags": 0},
        }
        await socket.send_json(self._event("READY", ready))
        self._join(socket)
        with self._changed:
            threads = [self._thread_payload(thread, "thread") for thread in self.threads]
        await socket.send_json(self._event("GUILD_CREATE", _guild(threads)))

    def _join(self, socket: web.WebSocketResponse) -> None:
        with self._changed:
            self._sockets.add(socket)
            self.connections += 1
            self._changed.notify_all()

    def _event(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        return {"op": _DISPATCH, "t": name, "s": next(self._sequence), "d": data}

    def _dispatch(self, name: str, data: dict[str, Any]) -> None:
        self._last_event = (name, data)
        self._call(self._broadcast(name, data))

    async def _broadcast(self, name: str, data: dict[str, Any]) -> None:
        for socket in tuple(self._sockets):
            with suppress(ConnectionError, RuntimeError):
                await socket.send_json(self._event(name, data))

    async def _drop(self) -> None:
        for socket in tuple(self._sockets):
            await socket.close(code=1_012)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        app = web.Application(client_max_size=50_000_000)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = int(self._runner.addresses[0][1])

    async def _close(self) -> None:
        await self._drop()
        if self._runner is not None:
            await self._runner.cleanup()

    def _call(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def _attachment(self, name: str, kind: str, data: bytes) -> dict[str, Any]:
        file_id = next(self._ids)
        self._files[file_id] = data
        url = f"{self.url}/files/{file_id}"
        fields = {"id": str(file_id), "filename": name, "content_type": kind, "size": len(data)}
        return {**fields, "url": url, "proxy_url": url}

    def _payload(self, message: ServiceMessage) -> dict[str, Any]:
        data: dict[str, Any] = {
            "id": str(message.id),
            "channel_id": str(message.channel_id),
            "author": {**_user(message.author_id), "bot": message.is_bot},
            "content": message.text,
            "timestamp": _TIME,
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [{**_user(BOT_ID), "bot": True}] if message.mentions_bot else [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "type": 0,
            "components": [],
        }
        return data if message.is_private else {**data, "guild_id": str(GUILD_ID)}

    def _thread_payload(self, thread_id: int, name: str) -> dict[str, Any]:
        metadata = {"archived": False, "auto_archive_duration": 1_440, "archive_timestamp": _TIME, "locked": False}
        return {
            "id": str(thread_id),
            "type": _THREAD,
            "guild_id": str(GUILD_ID),
            "parent_id": str(self.threads[thread_id]),
            "owner_id": str(BOT_ID),
            "name": name,
            "message_count": 0,
            "member_count": 1,
            "thread_metadata": metadata,
        }


def _user(user_id: int) -> dict[str, Any]:
    name = "perdure" if user_id == BOT_ID else f"user{user_id}"
    return {"id": str(user_id), "username": name, "discriminator": "0", "global_name": name, "avatar": None}


def _application() -> dict[str, Any]:
    fields = {"id": str(BOT_ID), "name": "perdure", "description": "", "icon": None, "flags": 0}
    return {**fields, "bot_public": False, "bot_require_code_grant": False, "owner": _user(USER_ID), "verify_key": ""}


def _text_channel() -> dict[str, Any]:
    return {"id": str(CHANNEL_ID), "type": 0, "name": "general", "position": 0, "guild_id": str(GUILD_ID)}


def _guild(threads: list[dict[str, Any]]) -> dict[str, Any]:
    fields = {"id": str(GUILD_ID), "name": "Guild", "owner_id": str(USER_ID), "member_count": 2, "unavailable": False}
    names = ("roles", "emojis", "stickers", "features", "members", "voice_states", "presences", "stage_instances")
    lists: dict[str, list[Any]] = {name: [] for name in (*names, "guild_scheduled_events", "soundboard_sounds")}
    return {**fields, **lists, "channels": [_text_channel()], "threads": threads}


def _json_response(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Build a JSON response without a charset, as Discord does: the library reads no other."""
    named = {"Content-Type": "application/json", **(headers or {})}
    return web.Response(body=json.dumps(body).encode(), status=status, headers=named)


async def _read_body(request: web.Request) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    if not request.content_type.startswith("multipart/"):
        raw = await request.read()
        return json.loads(raw) if raw else {}, []
    form = await request.post()
    files = [(f.filename, f.file.read()) for f in form.values() if isinstance(f, web.FileField)]
    return json.loads(str(form.get("payload_json") or "{}")), files


def _valid_text(text: str, *, has_files: bool) -> str:
    if not text.strip() and not has_files:
        raise DiscordRefusal(400, 50_006, "Cannot send an empty message")
    if len(text) > MAX_TEXT:
        raise DiscordRefusal(400, 50_035, "Invalid Form Body: Must be 2000 or fewer in length.")
    return text


def _buttons(body: dict[str, Any]) -> list[tuple[str, str]]:
    rows = body.get("components") or []
    return [(button["label"], button["custom_id"]) for row in rows for button in row.get("components", [])]


_INPUT_HELP = """\
What you type is a direct message to the bot. Lines of another kind:
  [Once]            press the button of that name under the newest question
  @bot TEXT         write in the channel #general and mention the bot, which opens a thread
  #1 TEXT           write in the first thread (#2: in the second, …)
  +FILE TEXT        a direct message with that file attached
"""


class StandInConsole:
    """A terminal for the user's side: reads lines, and prints what the bot sends and edits."""

    def __init__(self, service: DiscordService, echo: Callable[[str], object] = print) -> None:
        self._service = service
        self._echo = echo
        service.on_message = self.show

    def show(self, message: ServiceMessage) -> None:
        """Print a message of the bot, as it is now, with its buttons and files."""
        threads = list(self._service.threads)
        location = f" in #{threads.index(message.channel_id) + 1}" if message.channel_id in threads else ""
        verb = "bot edits" if len(message.texts) > 1 else "bot"
        buttons = "".join(f"\n  [{label}]" for label, _ in message.buttons)
        files = "".join(f"\n  (file {name}, {len(data):,} bytes)" for name, data in message.files)
        self._echo(f"{verb}{location}> {message.text}{buttons}{files}")

    def enter(self, line: str) -> None:
        """Run the action of a line; an action that fails prints an error, and sends nothing to the bot."""
        text = line.strip()
        try:
            if text.startswith("[") and text.endswith("]"):
                self._press(text[1:-1])
            elif text.startswith("@bot "):
                self._service.say(text[5:].strip(), channel=CHANNEL_ID, mentions=True)
            elif text.startswith("#") and text[1:2].isdecimal():
                self._say_in_thread(*text[1:].partition(" ")[::2])
            elif text.startswith("+") and len(text) > 1:
                self._attach(*text[1:].partition(" ")[::2])
            elif text:
                self._service.say(text)
        except (LookupError, OSError) as error:
            self._echo(f"stand-in: {error.args[-1]}")

    def _press(self, label: str) -> None:
        question = next((m for m in reversed(self._service.sent) if m.buttons), None)
        if question is None:
            raise LookupError("no question is open, so no button was pressed")
        labels = [name for name, _ in question.buttons]
        if label not in labels:
            raise LookupError(f"the open question has no button [{label}]; it has: [{'] ['.join(labels)}]")
        self._service.press(question, label)

    def _say_in_thread(self, number: str, text: str) -> None:
        threads = list(self._service.threads)
        if not number.isdecimal() or not 1 <= int(number) <= len(threads):
            raise LookupError(f"there is no thread #{number}; `@bot TEXT` opens one")
        self._service.say(text.strip(), channel=threads[int(number) - 1])

    def _attach(self, name: str, text: str) -> None:
        path = Path(name)
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        self._service.say(text.strip(), files=[(path.name, kind, path.read_bytes())])


def main() -> None:
    """Serve until the input ends."""
    parser = argparse.ArgumentParser(
        prog="python -m perdure.testing.discord_service",
        description="A stand-in for Discord on loopback, to try the bot without an account.",
        epilog=_INPUT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=8091, help="port to listen on (default: 8091)")
    with DiscordService(parser.parse_args().port) as service:
        print(f"A stand-in for Discord at {service.url}; you are user {USER_ID}. In another terminal:\n")
        print(f"  export DISCORD_BOT_TOKEN={TOKEN}")
        print("  perdure --set gateway.discord.enabled=true --set 'gateway.discord.allowed_users=[\"7\"]' \\")
        print(f"    --set gateway.discord.base_url={service.url} gateway\n")
        print('For approvals the agent needs a shell: add --set \'gateway.discord.scopes=["chat","read","shell"]\'\n')
        print(f"{_INPUT_HELP}Ctrl-D ends it.", flush=True)
        console = StandInConsole(service, lambda text: print(text, flush=True))
        for line in sys.stdin:
            console.enter(line)


if __name__ == "__main__":
    main()
