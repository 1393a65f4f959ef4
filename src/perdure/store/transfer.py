"""Conversations leave and enter whole: as JSONL of our own, or as plain OpenAI-style message lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from perdure.core.messages import Message
from perdure.store.backing import StoreContext
from perdure.store.conversations import Conversations
from perdure.store.drafts import AnyMessage
from perdure.store.exporting import Exporter
from perdure.store.importing import Importer
from perdure.store.ledger import Ledger
from perdure.store.log import MessageLog
from perdure.store.outputs import OutputStore
from perdure.store.records import Conversation, Session


class Transfer:
    def __init__(
        self,
        backing: StoreContext,
        *,
        conversations: Conversations,
        log: MessageLog,
        ledger: Ledger,
        outputs: OutputStore,
    ) -> None:
        self._conversations = conversations
        self._log = log
        self._exporter = Exporter(backing.database, ledger, outputs)
        self._importer = Importer(backing, outputs)

    def export_jsonl(self, any_id: str) -> Iterator[str]:
        """Everything stored of a conversation, one JSON text a line."""
        return self._exporter.lines(self._conversations.get(any_id))

    def import_jsonl(self, lines: Iterable[str]) -> Conversation:
        """What `export_jsonl` wrote, under its own ids; importing it again adds nothing. Raises StoreError."""
        return self._importer.run(lines)

    def import_copy(self, lines: Iterable[str]) -> Conversation:
        """What `export_jsonl` wrote, once more, under new ids."""
        return self._importer.run_as_copy(lines)

    def export_messages(self, any_id: str) -> list[dict[str, Any]]:
        """Everything said as an OpenAI-style list: the system prompt first, no handoffs, nothing left out."""
        conversation = self._conversations.get(any_id)
        prompt = self._conversations.session(conversation.tip_session_id).system_prompt
        system: list[dict[str, Any]] = [{"role": "system", "content": prompt}] if prompt else []
        return system + [e.message.to_dict() for e in self._log.said(conversation.id)]

    def import_messages(
        self, messages: Sequence[AnyMessage], *, source: str = "import", user_key: str = "", title: str = ""
    ) -> Session:
        """A new conversation of an OpenAI-style list; a leading system message becomes the system prompt."""
        values = [Message.from_dict(m) for m in messages]
        has_prompt = bool(values) and values[0].role in ("system", "developer")
        prompt = values[0].text if has_prompt else ""
        session = self._conversations.create(system_prompt=prompt, source=source, user_key=user_key, title=title)
        self._log.append(session.id, values[1:] if has_prompt else values)
        return session
