"""An engine of your own: three methods. It keeps the first message and the last few, and says what it left out."""

from collections.abc import Sequence

import perdure
from perdure.context.engine import Compaction, Insert, Keep, Reason
from perdure.core.messages import Entry, Message
from perdure.core.usage import CanonicalUsage
from perdure.testing.simulator import Simulator


class LastFew(perdure.ContextEngine):
    name = "last-few"

    def update_from_response(self, usage: CanonicalUsage) -> None:
        self.prompt_tokens = usage.prompt_tokens

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) > 600

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction:
        cut = len(messages) - 4
        if cut <= 2:
            return Compaction("nothing_to_do", (Keep(0, len(messages)),))
        note = Message(role="user", content=f"[{cut - 2} messages are no longer shown]", kind="handoff")
        return Compaction("compacted", (Keep(0, 2), Insert(note), Keep(cut, len(messages))))


perdure.register_context_engine("last-few", LastFew)

with Simulator(script=[f"Answer {i}. " + "word " * 60 for i in range(12)]) as service:
    agent = perdure.Agent(model="any", base_url=service.base_url, settings={"context": {"engine": "last-few"}})
    for i in range(12):
        agent.chat(f"Question {i}?")
    print(f"{len(service.requests)} calls; the last one carried {len(service.requests[-1].body['messages'])} messages")
