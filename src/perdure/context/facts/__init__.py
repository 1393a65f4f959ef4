"""Exact facts of a conversation: paths, ids, names and numbers, ranked by how likely they are needed again.

A summary drops most of the exact values that an agent goes on to need; code extracts and quotes them:

    extraction  the facts in a text, and the kind of each
    reading     the facts of a message by where they occur, cached per entry
    ranking     the probability that each fact is needed again
    quoting     a short, understandable excerpt around a fact
    sources     the excerpts that can show each fact, and their headings
    selection   choose facts and excerpts within a budget; start at `FactLedger.collect(...).lines_for(...)`

Data flows in that order; each module imports only from those above it.
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
