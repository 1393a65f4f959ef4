"""Exact values of a conversation: paths, ids, names and numbers, ranked by how likely they are needed again.

    extraction  parse the values of a text, and the kind of each
    reading     the values of a message by where they occur, cached per entry
    ranking     the probability that each value is needed again
    quoting     shorten a text at the end of a word

The index of a handoff (`context.record.index`) lists those that nothing else in view shows.
"""

from perdure.context.facts.ranking import FURTHEST_BACK
from perdure.context.facts.reading import FACTS_KEY, MessageFacts, facts_in, facts_of, read_facts

__all__ = [
    "FACTS_KEY",
    "FURTHEST_BACK",
    "MessageFacts",
    "facts_in",
    "facts_of",
    "read_facts",
]
