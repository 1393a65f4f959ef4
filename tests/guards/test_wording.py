"""Names, docstrings and comments use the field's words."""

from __future__ import annotations

import re
from collections import Counter

from support.source_tree import modules

# Participles and narrative nouns that tell a reader nothing: `found`, `kept`, `told` of what?
NARRATIVE_NAMES = frozenset(
    """told said heard asked taken made found given kept known shown seen wanted held left gone opened joined fitted
    begun answered spoken noted meant place places""".split()  # noqa: SIM905
)
MAX_NARRATIVE_NAMES_PER_10_000 = 10
# A story's words in place of a specification's.
NARRATIVE_WORDS = re.compile(
    r"\b(?:said|says?|told|tells?|heard|hears?|spoken?|stands?|stood|nobody|anybody|somebody|everybody|whoever)\b"
)
MAX_NARRATIVE_WORDS_PER_10_000 = 10
# What engineers call things. Widely read libraries have 311 to 521 of these words in 10,000.
FIELD_WORDS = re.compile(
    r"\b(?:cache[ds]?|timeouts?|retr(?:y|ies)|callbacks?|schema|payload|session|stream|request|response|token|thread"
    r"|async|transaction|lock|config|default|deprecated|returns?|raises?|argument|parameter|instance|queue|buffer"
    r"|serializ\w+|parse[rds]?|valid\w*|index|append)\b"
)
MIN_FIELD_WORDS_PER_10_000 = 300


def test_names_say_what_they_name() -> None:
    names = [name for module in modules().values() for name in module.identifiers]
    narrative = Counter(name for name in names if name in NARRATIVE_NAMES)
    rate = 10_000 * narrative.total() / len(names)
    assert rate <= MAX_NARRATIVE_NAMES_PER_10_000, narrative.most_common()


def test_docstrings_and_comments_are_written_in_the_words_of_the_field() -> None:
    prose = " ".join(module.prose for module in modules().values()).lower()
    words = len(prose.split())
    narrative = Counter(NARRATIVE_WORDS.findall(prose))
    assert 10_000 * narrative.total() / words <= MAX_NARRATIVE_WORDS_PER_10_000, narrative.most_common()
    assert 10_000 * len(FIELD_WORDS.findall(prose)) / words >= MIN_FIELD_WORDS_PER_10_000
