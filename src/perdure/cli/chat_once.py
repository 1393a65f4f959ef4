"""One question, one answer: for scripts and pipes. Only the answer goes to standard output."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

from perdure.cli.chat_surface import ChatSurface
from perdure.commands.all import all_commands
from perdure.core.events import CompactionFinished, Event, Notice, Recovered
from perdure.core.messages import Message


def ask_once(surface: ChatSurface, text: str, *, as_json: bool) -> int:
    """The exit code: 0 answered, 1 not, 130 interrupted."""
    if not text.strip():
        print("perdure: there is no question; give one with -q, or pipe it in", file=sys.stderr)
        return 2
    said = all_commands().dispatch(surface, text)
    if said is not None:
        print(said.text)
        return 1 if said.level == "error" else 0
    surface.listen(_print_json if as_json else _print_notices, lambda what, seconds: None)
    try:
        result = surface.agent.run_conversation(text)
    except KeyboardInterrupt:
        return 130
    finally:
        surface.close()
    if result.outcome == "failed":
        print(f"perdure: {result.error}", file=sys.stderr)
        return 1
    if not as_json:
        print(result.final_response)
    return 130 if result.outcome == "interrupted" else 0


def _print_notices(event: Event) -> None:
    match event:
        case Notice(text=text) | CompactionFinished(message=text):
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
