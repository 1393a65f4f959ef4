"""One question, one answer: for scripts and pipes. Only the answer goes to standard output."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.cli.chat.attachments import Attached, attach
from perdure.cli.chat.figures import embedded_lines
from perdure.cli.chat.surface import ChatSurface, Person
from perdure.commands.all import all_commands
from perdure.commands.titles import title_of
from perdure.core.events import CompactionFinished, Event, Notice, Recovered
from perdure.core.messages import Message


def ask_once(flags: Mapping[str, Any], text: str, *, session_id: str | None, as_json: bool) -> int:
    """The exit code: 0 answered, 1 not, 2 nothing was asked, 130 interrupted."""
    if not text.strip():
        print("perdure: there is no question; give one with -q, or pipe it in", file=sys.stderr)
        return 2
    person = Person(hear=_print_json if as_json else _print_notices)
    surface = ChatSurface(flags, session_id=session_id, person=person)
    try:
        said = all_commands().dispatch(surface, text)
        if said is None:
            return _answer(surface, text, as_json=as_json)
        if said.then_send is not None:
            print(f"perdure: {said.text}", file=sys.stderr)
            return _answer(surface, said.then_send, as_json=as_json)
        print(said.text, file=sys.stderr if said.level == "error" else sys.stdout)
        return 1 if said.level == "error" else 0
    except KeyboardInterrupt:
        return 130
    finally:
        surface.close()
        surface.store.close()


def _answer(surface: ChatSurface, said: str | Mapping[str, Any], *, as_json: bool) -> int:
    attached = attach(said, Path.cwd()) if isinstance(said, str) else Attached(said)
    for line in (*attached.told, *embedded_lines(surface)):
        print(f"perdure: {line}", file=sys.stderr)
    try:
        result = surface.agent.run_conversation(attached.message)
    finally:  # what failed is in the list, too, and is found by its name
        _name(surface, said)
    if result.outcome == "failed":
        print(f"perdure: {result.error}", file=sys.stderr)
        return 1
    if not as_json:
        print(result.final_response)
    return 130 if result.outcome == "interrupted" else 0


def _name(surface: ChatSurface, said: str | Mapping[str, Any]) -> None:
    conversations, session_id = surface.store.conversations, surface.session_id
    if session_id is not None and isinstance(said, str) and not conversations.get(session_id).title:
        conversations.set_title(session_id, title_of(said))


def _print_notices(event: Event) -> None:
    match event:
        case Notice(text=text) | CompactionFinished(message=text) if text:
            print(f"perdure: {text}", file=sys.stderr)
        case Recovered(verdict=verdict, action=action):
            print(f"perdure: {verdict.message} ({action})", file=sys.stderr)
        case _:
            pass


def _print_json(event: Event) -> None:
    print(json.dumps({"event": type(event).__name__, **_plain(event)}, ensure_ascii=False, default=str), flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value
