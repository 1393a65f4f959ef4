"""Choose the conversation that a chat continues: `--continue`, and `--resume` by id or as `last`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.cli.chat.command_context import MODE_KEY
from perdure.commands.conversations import PROJECT_KEY
from perdure.config.load import load
from perdure.config.project import project_root
from perdure.core.errors import InvalidFlag
from perdure.store.listing import ConversationFilter
from perdure.store.records import Conversation
from perdure.store.store import SessionStore, open_user_store

NEWEST = "last"


@dataclass(frozen=True, slots=True)
class Resumption:
    """The conversation to continue, None for a new one, and a notice for the user about the choice."""

    session_id: str | None = None
    notes: tuple[str, ...] = ()


def find_resumption(
    flags: Mapping[str, Any], session_id: str | None, *, is_continued: bool, is_question: bool = False
) -> Resumption:
    """Find the conversation that the flags ask for. Raises InvalidFlag if there is none.

    In a project without a chat a new one begins, with a notice on the newest of the others. A single question is
    refused there: it would be sent before the user could read the notice.
    """
    if session_id != NEWEST and (session_id is not None or not is_continued):
        return Resumption(session_id)
    loaded = load(flags=flags)
    with closing(open_user_store(loaded.settings, loaded.home)) as store:
        if session_id == NEWEST:
            return Resumption(_newest_of_all(store).id)
        project = str(project_root(Path.cwd(), Path.home()))
        if (chat := _newest_with(store, {PROJECT_KEY: project})) is not None:
            return Resumption(chat.id)
        return _elsewhere(store, is_question=is_question)


def _newest_of_all(store: SessionStore) -> Conversation:
    page = store.conversations.list(limit=1).conversations
    if not page:
        raise InvalidFlag("there is no conversation to go on with yet; start one with `perdure chat`")
    return page[0]


def _newest_with(store: SessionStore, state: Mapping[str, Any]) -> Conversation | None:
    page, _ = store.listing.page(ConversationFilter(state=state), limit=1)
    return page[0].conversation if page else None


def _elsewhere(store: SessionStore, *, is_question: bool) -> Resumption:
    """Return a new chat that names the newest of another project.

    Raises InvalidFlag for a single question, or if there is none.
    """
    chat = _newest_with(store, {MODE_KEY: None})
    if chat is None:
        newest = _newest_of_all(store)
        raise InvalidFlag(
            "there is no chat to go on with yet, only questions asked with -q and the like;"
            f" `perdure chat --resume {newest.id}` goes on with the newest of them, `perdure chat` starts a chat"
        )
    folder = store.conversation_state(chat.id).get(PROJECT_KEY) or "another folder"
    if is_question:
        raise InvalidFlag(
            f"there is no chat in this folder yet; the newest is in {folder}:"
            f" `perdure chat --resume {chat.id} -q …` asks there"
        )
    note = (
        f"No chat was in this folder yet: this is a new one. `/resume {chat.id}` goes on with the newest, of {folder}."
    )
    return Resumption(notes=(note,))
