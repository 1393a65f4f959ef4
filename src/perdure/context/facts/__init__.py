"""The exact facts of a conversation: what was used in calls, said by whom, how recently and how often.

A summary drops most of the paths, ids and names that an agent goes on to need. Code can know better:

    scan      a text → the facts in it
    kinds     a fact → what sort of thing it names
    parts     a path or compound name → what it shows beside itself
    reading   a message → its facts by where they stand, read once and kept beside it
    rank      all messages' facts → how likely each is to be needed again
    quotes    a fact in its source → a piece short enough to quote and long enough to be understood
    sources   facts and messages → the pieces that can show each, and what they go under
    page      facts, chances and pieces → lines within a budget
    ledger    the way in: `Ledger.collect(...).lines_for(...)`

Data flows in that order; no file here looks further than to those above it.
"""

from perdure.context.facts.ranking import FURTHEST_BACK
from perdure.context.facts.reading import FACTS_KEY, MessageFacts, facts_in, facts_of, read_facts
from perdure.context.facts.selection import BETWEEN_PIECES, FactLedger, FactLines

__all__ = [
    "BETWEEN_PIECES",
    "FACTS_KEY",
    "FURTHEST_BACK",
    "FactLedger",
    "FactLines",
    "MessageFacts",
    "facts_in",
    "facts_of",
    "read_facts",
]
