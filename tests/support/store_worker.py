"""A process that lives on a store until it is killed, and says on stdout what was acknowledged.

`python store_worker.py <path or URL> <seed> live` appends, compacts, undoes and searches for ever;
`… say <conversation> <count>` appends a number of messages and ends.
"""

from __future__ import annotations

import os
import random
import sys

from perdure.core.messages import HANDOFF_FIRST_LINE, Message, ToolCall, assistant, tool_result, user
from perdure.core.rules import Pairs
from perdure.store import NewHandoff, SessionStore, Span, open_store


def told(*words: str) -> None:
    """One line, whole, straight to the pipe: what was told was acknowledged before it."""
    os.write(1, (" ".join(words) + "\n").encode())


def live(store: SessionStore, seed: int) -> None:
    chance = random.Random(seed)
    open_conversations = [c.id for c in store.conversations.list(limit=3).conversations]
    if len(open_conversations) < 3:
        open_conversations.append(store.create(system_prompt="p").conversation_id)
    number = 0
    while True:
        conversation = chance.choice(open_conversations)
        number += 1
        deed = chance.random()
        if deed < 0.75:
            name = f"{seed}-{number}"
            call = ToolCall(f"call_{name}", "terminal", "{}")
            filler = "word " * chance.randrange(300)
            said = [user(f"{name} {filler}"), assistant(None, (call,)), tool_result(call.id, filler), assistant("done")]
            store.append(conversation, said)
            told("said", conversation, name)
        elif deed < 0.9:
            told("compacted", conversation, compact(store, conversation))
        elif deed < 0.93 and any(m.kind == "handoff" for m in store.history(conversation).messages):
            told("undone", conversation, store.undo(conversation).id)
        else:
            store.search("word done", limit=5)


def compact(store: SessionStore, conversation: str) -> str:
    """Everything but a head and a tail that keep call and result together."""
    entries = store.history(conversation).entries
    cuts = sorted(Pairs().cut_points([e.message for e in entries]))
    low, high = cuts[min(1, len(cuts) - 1)], cuts[max(0, len(cuts) - 3)]
    summary = NewHandoff(Message("user", f"{HANDOFF_FIRST_LINE}\nso far", kind="handoff"))
    head = [Span(e.seq, e.seq) for e in entries[:low]]
    tail = [Span(e.seq, e.seq) for e in entries[max(low, high) :]]
    return store.compact(conversation, (*head, summary, *tail)).id


def main(where: str, seed: str, deed: str, *rest: str) -> None:
    store = open_store(where)
    told("ready")
    if deed == "live":
        live(store, int(seed))
    conversation, count = rest
    for number in range(int(count)):
        store.append(conversation, user(f"{seed}-{number}"))
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
