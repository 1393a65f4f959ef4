"""Scrubbing: the one way a stored body is ever changed, to take out secrets that should never have been said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.errors import CorruptStore
from perdure.core.messages import Message, canonical_json, clean
from perdure.store.backing import StoreContext
from perdure.store.codec import decode, load_payload, pack, unpack
from perdure.store.database import Transaction, text
from perdure.store.drafts import PreparedMessage, scoped
from perdure.store.integrity import record_scrubbed
from perdure.store.leases import admit
from perdure.store.outputs import OutputStore
from perdure.store.records import Conversation, Lease

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """How many bodies and outputs held something to take out."""

    messages: int
    outputs: int


class Scrubber:
    """Redacts everything stored of one conversation: messages, prompts, titles, events, outputs and the index."""

    def __init__(self, backing: StoreContext, outputs: OutputStore) -> None:
        self._backing = backing
        self._outputs = outputs

    def scrub(self, any_id: str, redact: Redact, *, lease: Lease | None = None) -> Scrubbed:
        """One transaction. Keys stay what they were, so that handing in the unredacted history again adds nothing."""

        def work(tx: Transaction) -> tuple[Conversation, int]:
            conversation, _ = self._backing.hold(tx, any_id)
            admit(tx, conversation.id, lease, now_ms=self._backing.clock.now_ms())
            tx.run("INSERT INTO permit (conversation, deed) VALUES (?, 'scrub')", (conversation.id,))
            changed = self._messages(tx, conversation, redact)
            _prompts_and_titles(tx, conversation, redact)
            tx.run("DELETE FROM permit WHERE conversation = ?", (conversation.id,))
            self._backing.index.settle(tx, "message")
            return conversation, changed

        conversation, changed = self._backing.database.erase(work)
        return Scrubbed(changed, self._scrub_outputs(conversation, redact))

    def _messages(self, tx: Transaction, conversation: Conversation, redact: Redact) -> int:
        changed = 0
        numbers = tx.rows("SELECT id, seq FROM message WHERE conversation = ?", (conversation.id,))
        for number, seq in numbers:
            rows = tx.rows("SELECT body, encoding, kind FROM message WHERE id = ?", (number,))
            try:
                before = PreparedMessage.of(decode(*rows[0]))
            except CorruptStore:  # what cannot be read cannot be redacted, and is left for a backup to mend
                continue
            after = PreparedMessage.of(redacted(before.message, redact))
            if after.body.canonical == before.body.canonical:
                continue
            tx.run(
                "UPDATE message SET body = ?, encoding = ?, chars = ? WHERE id = ?",
                (after.body.stored, after.body.encoding, len(after.message.text), number),
            )
            record_scrubbed(tx, conversation.id, seq, after.body.canonical)
            self._backing.index.remove(tx, "message", [(number, scoped(before, conversation))])
            tx.run_many(*self._backing.index.addition("message", [(number, scoped(after, conversation))]))
            changed += 1
        return changed

    def _scrub_outputs(self, conversation: Conversation, redact: Redact) -> int:
        """Each output is written anew under its old id; the old text goes once the new one stands."""
        changed = 0
        for output in self._outputs.list(conversation.id):
            before = self._outputs.whole(output.id)
            after = redact(before)
            if after != before:
                self._outputs.replace(output.id, after)
                changed += 1
        return changed


def redacted(message: Message, redact: Redact) -> Message:
    """The message with every text in it redacted; arguments that were valid JSON stay so."""
    raw = _walk(message.to_dict(), redact)
    for call, given in zip(raw.get("tool_calls") or (), message.tool_calls, strict=False):
        arguments = given.parsed_arguments()
        if arguments is not None and redact(given.arguments) != given.arguments:
            call["function"]["arguments"] = canonical_json(_walk(arguments, redact))
    return replace(Message.from_dict(raw), kind=message.kind)


def _prompts_and_titles(tx: Transaction, conversation: Conversation, redact: Redact) -> None:
    for ident, stored, encoding in tx.rows(
        "SELECT id, system_prompt, prompt_encoding FROM session WHERE conversation = ?", (conversation.id,)
    ):
        prompt = clean(redact(unpack(stored, encoding).decode())).encode()
        tx.run("UPDATE session SET system_prompt = ?, prompt_encoding = ? WHERE id = ?", (*pack(prompt), ident))
    tx.run(
        "UPDATE conversation SET title = ?, todo = ? WHERE id = ?",
        (text(redact(conversation.title)), text(redact(conversation.todo)), conversation.id),
    )
    for ident, payload in tx.rows("SELECT id, payload FROM event WHERE conversation = ?", (conversation.id,)):
        cleaned = json.dumps(_walk(load_payload(payload), redact), ensure_ascii=True)
        tx.run("UPDATE event SET payload = ? WHERE id = ?", (cleaned, ident))
    for number, content, result in tx.rows(
        "SELECT number, content, result FROM inbox WHERE conversation = ?", (conversation.id,)
    ):
        held = [json.dumps(_walk(json.loads(t), redact), ensure_ascii=True) if t else "" for t in (content, result)]
        tx.run("UPDATE inbox SET content = ?, result = ? WHERE number = ?", (*held, number))


def _walk(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {k: _walk(v, redact) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(v, redact) for v in value]
    return value
