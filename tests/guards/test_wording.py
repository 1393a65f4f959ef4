"""Names, docstrings and comments use the field's words."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from support.source_tree import modules

# Participles and narrative nouns that tell a reader nothing: `found`, `kept`, `told` of what?
NARRATIVE_NAMES = frozenset(
    """told said heard asked taken made found given kept known shown seen wanted held left gone opened joined fitted
    begun answered spoken noted meant place places""".split()  # noqa: SIM905
)
MAX_NARRATIVE_NAMES_PER_10_000 = 10
# The whole name of a function: does `checked` validate, or return something valid? Irregular participles that are also
# the verb (`read`, `put`, `cut`, `split`) say what the function does.
PARTICIPLE = re.compile(
    r"(?:un|re|over|with)?(?:\w+ed|begun|bound|broken|built|caught|chosen|done|drawn|driven|felt|forgotten|found|frozen|given"
    r"|gone|got|grown|heard|held|hidden|kept|known|laid|led|left|lost|made|meant|met|paid|said|seen|sent|shown|sold"
    r"|sought|spent|spoken|stood|stuck|taken|thought|thrown|told|torn|understood|won|written)"
)
VERBS_IN_ED = frozenset(("feed", "embed", "need"))
PARTICIPLES_FOR_A_REASON = {
    "perdure.gateway.api.messages.unanswered": "the name of an endpoint is part of its operation id in OpenAPI",
    "perdure.tools.shell_safety.wrappers._sed": "the program: readers of one program's arguments are named after it",
}
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


def test_no_function_is_named_by_a_participle_alone() -> None:
    found = {f"{name}.{function}" for name, module in modules().items() for function in module.callables}
    participles = {name for name in found if _is_participle(name.rpartition(".")[2])}
    assert sorted(participles - set(PARTICIPLES_FOR_A_REASON)) == [], (
        "a verb, `is_…`, `make_…` or `…_error` says what it does"
    )
    assert sorted(set(PARTICIPLES_FOR_A_REASON) - participles) == [], "no longer needed"


@pytest.mark.parametrize("name", ["checked", "_told", "_unanswered", "unsent", "__joined", "rewritten"])
def test_a_bare_participle_is_recognised(name: str) -> None:
    assert _is_participle(name)


@pytest.mark.parametrize("name", ["check", "feed", "_embed", "_split", "read", "is_sent", "mark_sent", "_broken_error"])
def test_a_verb_or_a_longer_name_is_no_bare_participle(name: str) -> None:
    assert not _is_participle(name)


def test_docstrings_and_comments_are_written_in_the_words_of_the_field() -> None:
    prose = " ".join(module.prose for module in modules().values()).lower()
    words = len(prose.split())
    narrative = Counter(NARRATIVE_WORDS.findall(prose))
    assert 10_000 * narrative.total() / words <= MAX_NARRATIVE_WORDS_PER_10_000, narrative.most_common()
    assert 10_000 * len(FIELD_WORDS.findall(prose)) / words >= MIN_FIELD_WORDS_PER_10_000


def _is_participle(name: str) -> bool:
    plain = name.strip("_")
    return "_" not in plain and plain not in VERBS_IN_ED and PARTICIPLE.fullmatch(plain) is not None
